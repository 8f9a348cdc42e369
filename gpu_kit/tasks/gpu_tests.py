"""The tests of ``tests/gpu``, each with a time limit; a test that crashes or hangs costs none but its own result."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from gpu_kit.runner import KIT
from gpu_kit.tasks.task import TaskRun

_MAX_STARTS = 6
_MAX_TRACE_BYTES = 20_000_000


def main() -> None:
    run = TaskRun()
    events_path = run.folder / "tests.jsonl"
    scratch = run.folder / "scratch"
    done: dict[str, dict[str, Any]] = {}
    exit_codes: list[int] = []
    for number in range(_MAX_STARTS):
        code = _run_pytest(run, events_path, scratch / f"start{number}", sorted(done))
        exit_codes.append(code)
        done, running = _read(events_path)
        if running is not None:
            done[running] = {"outcome": "crashed", "reason": f"pytest ended with {code} in this test"}
            with events_path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"test": running, **done[running]}) + "\n")
        run.add(exit_codes=exit_codes, tests=done)
        if running is None:
            break
    _keep_traces(scratch, run.folder / "traces")
    shutil.rmtree(scratch, ignore_errors=True)
    bad = [name for name, test in done.items() if test["outcome"] not in ("passed", "skipped")]
    if bad or not done:
        sys.exit(f"failed: {', '.join(bad) or 'no test was found'}")


def _run_pytest(run: TaskRun, events: Path, scratch: Path, deselected: list[str]) -> int:
    scratch.parent.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pytest", "tests/gpu", "-c", "pytest.ini", "-q", "-ra"]
    command += ["-p", "gpu_kit.tasks.pytest_events", "-p", "no:cacheprovider", "--basetemp", str(scratch)]
    command += [word for name in deselected for word in ("--deselect", name)]
    environment = os.environ | {"GPU_KIT_TEST_EVENTS": str(events)}
    try:
        return subprocess.run(command, cwd=KIT, env=environment, timeout=max(1.0, run.seconds_left())).returncode
    except subprocess.TimeoutExpired:
        return -1


def _read(events: Path) -> tuple[dict[str, dict[str, Any]], str | None]:
    """Return the outcomes by test, and the test that was running when pytest ended."""
    done: dict[str, dict[str, Any]] = {}
    running: str | None = None
    lines = events.read_text(encoding="utf-8").splitlines() if events.exists() else []
    for line in lines:
        event = json.loads(line)
        name = event.pop("test")
        if event.get("outcome") == "started":
            running = name
        else:
            done[name] = event
            running = None if running == name else running
    return done, running


def _keep_traces(scratch: Path, kept: Path) -> None:
    """Keep the traces that tests wrote, for Perfetto's trace processor, which a GPU machine may lack."""
    kept.mkdir(exist_ok=True)
    for path in sorted((*scratch.rglob("*trace*.json*"), *scratch.rglob("ep*.json*"))):
        if path.is_file() and not path.is_symlink() and path.stat().st_size < _MAX_TRACE_BYTES:
            test = path.relative_to(scratch).parts[1]
            target = kept / f"{test[:60]}-{path.name}"
            if not target.exists():
                shutil.copyfile(path, target)


if __name__ == "__main__":
    main()
