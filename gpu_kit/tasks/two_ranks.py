"""A training job of two processes, one of them late in every third step: NCCL where available, else gloo."""

import subprocess
import sys
from pathlib import Path

from gpu_kit.tasks.recorded import drop_copies
from gpu_kit.tasks.task import TaskRun

TRAINING = Path(__file__).with_name("ranks_training.py")
RECORDED, AFTER = 15, 10


def main() -> None:
    run = TaskRun()
    exit_codes: dict[str, int | None] = {}
    if not run.cpu:
        exit_codes["nccl"] = _train(run, "nccl", run.seconds_left() / 2)
    if exit_codes.get("nccl") != 0:
        exit_codes["gloo"] = _train(run, "gloo", run.seconds_left())
    run.add(backend=next((name for name, code in exit_codes.items() if code == 0), None), exit_codes=exit_codes)
    if 0 not in exit_codes.values():
        sys.exit(f"exit codes: {exit_codes}")


def _train(run: TaskRun, backend: str, limit_s: float) -> int | None:
    command = [sys.executable, "-m", "kinetoscope", "run", "--diagnose", "-o", str(run.folder / backend)]
    command += ["--after", str(AFTER), "--num-steps", str(RECORDED), "--"]
    command += [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [str(TRAINING), backend, run.device]
    with Path(run.folder, f"{backend}.txt").open("wb") as output:
        try:
            done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, timeout=max(1.0, limit_s))
            code = done.returncode
        except subprocess.TimeoutExpired:
            code = None
    drop_copies(run.folder / backend)
    return code


if __name__ == "__main__":
    main()
