"""Runs the parts of the kit, each task in a process of its own, and writes results after each task.

``OUT`` gets ``results.json`` and one archive per part. A task that crashes, hangs or runs out of time costs nothing but
its own results.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpu_kit.archive import add_folder
from gpu_kit.parts import PARTS, TIME_LIMIT_S, Part, Task

KIT = Path(__file__).resolve().parents[1]
RESULTS = "results.json"
SCHEMA = 1

CPU_TIME_FACTOR = 3.0
"""Time limits are for a GPU machine with 16 cores; CI has two, and other work on them."""

_GRACE_S = 4.0
_MIN_TASK_S = 5.0
_INSTALL_LIMIT_S = 60.0
_MAX_OUTPUT_BYTES = 200_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the kit; return 1 if a task failed or ran out of time, else 0."""
    parser = argparse.ArgumentParser(prog="run", description="Run the GPU kit and write its results into OUT.")
    parser.add_argument("out", type=Path, metavar="OUT")
    parser.add_argument("--cpu", action="store_true", help="skip what needs CUDA")
    parser.add_argument("--only", type=_part_names, metavar="PART,PART", help=", ".join(part.name for part in PARTS))
    options = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    parts = [part for part in PARTS if options.only is None or part.name in options.only]
    with tempfile.TemporaryDirectory(prefix="gpu-kit-", ignore_cleanup_errors=True) as work:
        run = KitRun(options.out, Path(work), cpu=options.cpu)
        run.install(KIT / "wheels")
        run.run_parts(parts)
    return run.exit_code()


def _part_names(text: str) -> set[str]:
    names = set(text.split(","))
    if unknown := names - {part.name for part in PARTS}:
        raise argparse.ArgumentTypeError(f"unknown part: {', '.join(sorted(unknown))}")
    return names


class KitRun:
    """One run of the kit into the folder ``out``; ``work`` is for files that do not come back."""

    def __init__(self, out: Path, work: Path, *, cpu: bool) -> None:
        self.cpu = cpu
        self._out, self._work = out, work
        self._site = work / "site"
        self._started = time.monotonic()
        self._tasks: dict[str, dict[str, Any]] = {}
        self._parts: dict[str, dict[str, Any]] = {}
        self._install: dict[str, Any] = {"status": "skipped"}
        out.mkdir(parents=True, exist_ok=True)
        for old in (*out.glob("*.zip"), *out.glob("*.partial"), out / RESULTS):
            old.unlink(missing_ok=True)
        self._write()

    def exit_code(self) -> int:
        """Return 1 if a task failed or ran out of time, else 0."""
        tasks = [task for part in self._parts.values() for task in part["tasks"].values()]
        return int(any(task["status"] not in ("done", "skipped") for task in (self._install, *tasks)))

    def install(self, wheels: Path) -> None:
        """Install the wheels that fit this Python; unpack them where pip fails."""
        begin = time.monotonic()
        names = sorted({path.name.partition("-")[0] for path in wheels.glob("*.whl")})
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-compile"]
        command += ["--disable-pip-version-check", "--find-links", str(wheels), "--target", str(self._site), *names]
        done = _run(command, self._work / "install.txt", os.environ, self._work, _INSTALL_LIMIT_S)
        self._install = {"status": "done", "how": "pip", "packages": names}
        if done != 0:
            how = f"pip ended with {done}: {_tail(self._work / 'install.txt', 500)}"
            self._install |= {"how": f"unpacked, since {how}"}
            try:
                _unpack(wheels, self._site)
            except (OSError, zipfile.BadZipFile) as error:
                self._install |= {"status": "failed", "reason": str(error)}
        self._install["seconds"] = round(time.monotonic() - begin, 2)
        self._write()
        self._report("install", self._install)

    def run_parts(self, parts: Sequence[Part]) -> None:
        """Run the parts in order. A part's deadline is the sum of the limits so far."""
        factor = CPU_TIME_FACTOR if self.cpu else 1.0
        limit_s = 0.0
        for number, part in enumerate(parts, 1):
            limit_s += part.limit_s * factor
            until = self._started + min(limit_s, TIME_LIMIT_S * factor)
            self._parts[part.name] = {"title": part.title, "seconds": 0.0, "tasks": {}}
            for task in part.tasks:
                self._run_task(part, task, until, factor, self._out / f"{number}-{part.name}.zip")

    def _run_task(self, part: Part, task: Task, until: float, factor: float, archive: Path) -> None:
        record = self._parts[part.name]
        begin = time.monotonic()
        limit_s = min(task.limit_s * factor, until - begin)
        if self.cpu and not task.cpu:
            result: dict[str, Any] = {"status": "skipped", "reason": "needs CUDA"}
        elif limit_s < _MIN_TASK_S:
            result = {"status": "not started", "reason": "no time was left"}
        else:
            record["tasks"][task.name] = {"status": "running"}
            self._write()
            result = self._run_process(part, task, limit_s, archive)
        record["tasks"][task.name] = result
        record["seconds"] = round(record["seconds"] + time.monotonic() - begin, 2)
        self._write()
        self._report(f"{part.name}/{task.name}", result)

    def _run_process(self, part: Part, task: Task, limit_s: float, archive: Path) -> dict[str, Any]:
        """Run a task's process to its end or its limit, and keep the files of its folder."""
        folder = self._work / part.name / task.name
        folder.mkdir(parents=True)
        command = [sys.executable, "-m", task.module, str(folder), *task.arguments]
        command += ["--seconds", f"{limit_s - _GRACE_S:.1f}", *(["--cpu"] if self.cpu else [])]
        begin = time.monotonic()
        code = _run(command, folder / "output.txt", self._environment(), self._work, limit_s)
        result: dict[str, Any] = {"status": "done", "seconds": round(time.monotonic() - begin, 2)}
        if code is None:
            result |= {"status": "timed out", "reason": f"not finished after {limit_s:.0f} s"}
        elif code != 0:
            result |= {"status": "failed", "reason": f"exit code {code}", "output": _tail(folder / "output.txt", 1500)}
        result["result"] = read_json(folder / "result.json")
        if code == 0 and result["result"].get("skipped_task"):
            result |= {"status": "skipped", "reason": result["result"]["skipped_task"]}
        _shorten(folder / "output.txt")
        try:
            result["left_out"] = add_folder(archive, folder, task.name)
        except (OSError, zipfile.BadZipFile) as error:
            result["left_out"] = [f"{task.name}: {error}"]
        shutil.rmtree(folder, ignore_errors=True)
        return result

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(self._site), str(KIT), *filter(None, [os.environ.get("PYTHONPATH")])])
        threads = {"OMP_NUM_THREADS": "1"} if self.cpu else {}
        return os.environ | {
            **threads,
            "PYTHONPATH": path,
            "PYTHONUNBUFFERED": "1",
            "XDG_CACHE_HOME": str(self._work / "cache"),
            "TORCHINDUCTOR_CACHE_DIR": str(self._work / "inductor"),
            "TRITON_CACHE_DIR": str(self._work / "triton"),
            "KINETO_LOG_LEVEL": os.environ.get("KINETO_LOG_LEVEL", "5"),
        }

    def _write(self) -> None:
        results = {
            "schema": SCHEMA,
            "kit": read_json(KIT / "kit.json"),
            "device": "cpu" if self.cpu else "gpu",
            "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "elapsed_s": round(time.monotonic() - self._started, 1),
            "install": self._install,
            "parts": self._parts,
        }
        write_json(self._out / RESULTS, results)

    def _report(self, name: str, result: Mapping[str, Any]) -> None:
        reason = f" ({result['reason']})" if "reason" in result else ""
        seconds = f" {result['seconds']:.1f} s" if "seconds" in result else ""
        print(f"{time.monotonic() - self._started:6.1f} s  {name}: {result['status']}{reason}{seconds}", flush=True)


def _run(command: list[str], output: Path, environment: Mapping[str, str], cwd: Path, limit_s: float) -> int | None:
    """Run a command in a session of its own, and end both; return its exit code, or None if it took too long."""
    with output.open("ab") as file:
        options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": file, "stderr": subprocess.STDOUT}
        process = subprocess.Popen(command, env=dict(environment), cwd=cwd, start_new_session=True, **options)
    try:
        return process.wait(limit_s - _GRACE_S)
    except subprocess.TimeoutExpired:
        _signal_group(process.pid, signal.SIGTERM)  # a recording is saved now
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_GRACE_S)
        return None
    finally:
        _signal_group(process.pid, signal.SIGKILL)
        process.wait()


def _signal_group(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _unpack(wheels: Path, site: Path) -> None:
    """Unpack wheels as pip would install them: those for this Python, or for any."""
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    for path in wheels.glob("*.whl"):
        python, abi = path.stem.split("-")[2:4]
        if python == tag or abi == "abi3" or python.startswith("py3"):
            with zipfile.ZipFile(path) as file:
                file.extractall(site)


def _tail(path: Path, num_characters: int) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")[-num_characters:]
    except OSError:
        return ""


def _shorten(path: Path) -> None:
    """Keep the end of a long output."""
    with contextlib.suppress(OSError):
        if path.stat().st_size > _MAX_OUTPUT_BYTES:
            path.write_bytes(path.read_bytes()[-_MAX_OUTPUT_BYTES:])


def read_json(path: Path) -> dict[str, Any]:
    """Return a file's JSON object; an empty one if there is no such file, or no JSON in it."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file as a whole, or not at all."""
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    os.replace(partial, path)
