"""Tries an installed Kinetoscope as a stranger would: ``python smoke.py``.

Needs only what a base install has: no torch, no pytest. On a system without run folders, such as Windows, nothing is
recorded: the commands get traces that are written here.
"""

import importlib.metadata
import json
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from importlib.util import find_spec
from pathlib import Path

import kinetoscope
from kinetoscope.core.paths.run_folder import HAS_RUN_FOLDERS
from kinetoscope.native import why_not_loaded, why_not_recorded

DECLARED = {"psutil", "msgspec", "isal", "rich", "polars", "jinja2"}
BASE_NS = 1_790_857_026_000_000_000


def main() -> None:
    check_package()
    with tempfile.TemporaryDirectory(prefix="kinetoscope smoke ö ") as name:
        folder = Path(name).resolve()
        os.chdir(folder)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")  # nothing stays in the user's own
        traces = [write_trace(folder / f"rank{rank}.json", rank) for rank in range(2)]
        check_file_commands(traces, folder)
        if HAS_RUN_FOLDERS:
            require(not why_not_recorded(), why_not_recorded())
            check_recording(folder / "run")
        os.chdir(Path(__file__).parent)  # Windows deletes no folder that is in use
    print(f"kinetoscope {kinetoscope.__version__} works")


def check_package() -> None:
    """The package is whole, is the installed one, and declares what it should."""
    require(Path(kinetoscope.__file__).is_relative_to(sys.prefix), f"{kinetoscope.__file__} is not what was installed")
    metadata = importlib.metadata.metadata("kinetoscope")
    require(metadata["Version"] == kinetoscope.__version__, "the version is the package's own")
    base = [line for line in importlib.metadata.requires("kinetoscope") or () if "extra ==" not in line]
    require({re.split(r"[ <>=!~;]", line)[0] for line in base} == DECLARED, f"it declares {base}")
    for name in set(kinetoscope.__all__) - (set() if find_spec("torch") else {"TorchProfiler"}):
        require(bool(getattr(kinetoscope, name).__doc__), f"{name} can be imported, and has a docstring")
    for part in ("py.typed", "_native.pyi", "pages/page.html", "server/page.css", "analysis/findings/rules/hang.md"):
        require((Path(kinetoscope.__file__).parent / part).is_file(), f"{part} is there")
    require(not why_not_loaded(), why_not_loaded())


def check_file_commands(traces: list[Path], folder: Path) -> None:
    """Check reading and writing of files, on all systems."""
    require(f"kinetoscope {kinetoscope.__version__} (" in command("--version"), "--version says it")
    require("no faults (20 events)" in command("check", traces[0]), "a trace is checked")
    command("info", *traces)
    command("merge", "-o", folder / "merged.json", *traces)
    spans = kinetoscope.load(folder / "merged.json").spans.collect()
    require(spans.height == 40, f"the merged trace has {spans.height} spans of 40")
    for name in ("packed.json.gz", "trace.pftrace", "trace.parquet"):
        command("convert", traces[0], "-o", folder / name)
        require((folder / name).stat().st_size > 0, f"{name} is written")
    require("the others wait for them" in command("explain", "straggler"), "explanations are there")


def check_recording(run: Path) -> None:
    """A loop is recorded, and the run has an answer and a page. A second run of the process is as good as the first."""
    for folder in (run, run.with_name("run2")):
        record(folder)
        require(sorted(os.listdir(folder / "traces"))[-1] == "merged_trace.json.gz", f"{folder} has a merged trace")
        require(not list(folder.glob("live/*/*")), "nothing is left in the spool folder")
        command("check", folder / "traces")
    require("steps" in command("summary", run), "a run has a summary")
    command("report", run)
    require((run / "report.html").stat().st_size > 100_000, "a run has a page")
    command("diff", run, run.with_name("run2"), statuses=(0, 1, 3))  # 3: inconclusive
    script = run.with_name("training.py")
    script.write_text("for _ in range(3):\n    print('trained')\n", encoding="utf-8")
    printed = command("run", "--output", run.with_name("run3"), sys.executable, script)
    require(printed.count("trained") == 3, "kinetoscope run keeps what is printed")


def record(folder: Path) -> None:
    with kinetoscope.profile(folder) as profiler:
        forward = profiler.marker("forward")
        for number in profiler.batches(range(40)):
            with forward:
                sum(range(1000 * (number % 3)))


def write_trace(path: Path, rank: int) -> Path:
    spans = [{"ph": "X", "name": f"op {n}", "pid": 1, "tid": 1, "ts": 10 * n, "dur": 5} for n in range(20)]
    header = {"baseTimeNanoseconds": BASE_NS, "distributedInfo": {"rank": rank}}
    path.write_text(json.dumps(header | {"traceEvents": spans}), encoding="utf-8")
    return path


def command(*arguments: object, statuses: tuple[int, ...] = (0,)) -> str:
    """Return the output of the installed command, which must exit with one of ``statuses``."""
    program = Path(sysconfig.get_path("scripts"), "kinetoscope")
    done = subprocess.run(
        [str(program), *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONIOENCODING": "utf-8"},
    )
    require(done.returncode in statuses, f"kinetoscope {arguments[0]}: {done.returncode}\n{done.stdout}{done.stderr}")
    require("Traceback" not in done.stderr, done.stderr)
    return done.stdout


def require(is_true: bool, what: str) -> None:
    if not is_true:
        sys.exit(f"Failed: {what}")


if __name__ == "__main__":
    main()
