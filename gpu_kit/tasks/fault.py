"""One planted program: times of the fault and its fix without a profiler, then a recording of the fault."""

import subprocess
import sys

from gpu_kit.runner import KIT, read_json
from gpu_kit.tasks.recorded import drop_copies
from gpu_kit.tasks.task import TaskRun

NUM_STEPS, AFTER, RECORDED = 60, 20, 10


def main() -> None:
    run = TaskRun()
    (program,) = run.names
    script = [sys.executable, str(KIT / "gpu_kit" / "faults" / f"{program}.py")]
    device = ["--cpu"] if run.cpu else []
    times = run.folder / "times.json"
    exit_codes = {}
    if not program.startswith("healthy"):
        measure = [*script, *device, "--steps", str(NUM_STEPS), "--measure", str(times)]
        exit_codes["measure"] = _call(measure, 0.55 * run.seconds_left())
        run.add(exit_codes=exit_codes, times=read_json(times))
    record = [sys.executable, "-m", "kinetoscope", "run", "--diagnose", "-o", str(run.folder / "run")]
    record += ["--after", str(AFTER), "--num-steps", str(RECORDED), "--"]
    exit_codes["record"] = _call([*record, *script, *device, "--steps", str(NUM_STEPS)], run.seconds_left())
    drop_copies(run.folder / "run")
    run.add(exit_codes=exit_codes)
    expected = (0, 1) if program == "out_of_memory" else (0,)  # it ends with the error that was planted
    if any(code not in expected for code in exit_codes.values()):
        sys.exit(f"exit codes: {exit_codes}")


def _call(command: list[str], limit_s: float) -> int | None:
    """Run a program; return its exit code, or None if it took too long."""
    try:
        return subprocess.run(command, timeout=max(1.0, limit_s)).returncode
    except subprocess.TimeoutExpired:
        return None


if __name__ == "__main__":
    main()
