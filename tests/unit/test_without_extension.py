"""Kinetoscope without its native extension: it can be imported, training continues, and commands report the remedy."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from kinetoscope.formats.manifest import START_FILE, find_empty_reason
from support.fork_server import TORCH_COMPILE_MODULES, run_forked

ROOT = Path(__file__).parents[2]
WITHOUT = "import sys\nsys.modules['kinetoscope._native'] = sys.modules['kinetoscope._kineto_save'] = None\n"
REASON = "The native extension is not installed. Install a wheel for this system"


def run(program, folder, *, status=0):
    """Return the output of a program that ends with ``status``."""
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=150)
    assert done.returncode == status, done.stderr
    return done.stdout, done.stderr


REMEDY = f"{REASON}, or build one where there is a compiler: docs/install.md."

TRAINING = """
import kinetoscope

@kinetoscope.marker
def forward():
    pass

with kinetoscope.profile("run", diagnose=True, torch=False) as profiler:
    for batch in profiler.batches(range(4)):
        with profiler.marker("step"), kinetoscope.marker("library"):
            forward()
        profiler.marker("loss").counter(0.5)
        token = profiler.marker("copy").begin()
        profiler.marker("copy").end(token)
with profiler.marker("after"):
    pass
print(profiler.state.timestamp.batch, kinetoscope.active_profiler())
"""


def test_training_continues_unrecorded_with_one_line(tmp_path):
    """The state that it may read counts on."""
    out, err = run(WITHOUT + TRAINING, tmp_path)
    assert out == "4 None\n"
    assert err.count(f"Nothing is recorded; training continues. {REASON}") == 1
    assert len(err.splitlines()) == 1
    assert not [*tmp_path.iterdir()]


def test_a_strict_training_ends_before_it_starts(tmp_path):
    _, err = run(WITHOUT + TRAINING.replace("torch=False", "torch=False, strict=True"), tmp_path, status=1)
    assert err.splitlines()[-1].startswith(f"kinetoscope.errors.NativeExtensionError: {REASON}")
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("handlers", ['JSONTraceHandler("traces")', "()"])
def test_a_profiler_does_not_start(tmp_path, handlers):
    program = f"""
from kinetoscope import JSONTraceHandler, Profiler, cyclic_schedule
profiler = Profiler(cyclic_schedule(skip_first=3), {handlers})
profiler.start()
"""
    _, err = run(WITHOUT + program, tmp_path, status=1)
    assert err.splitlines()[-1].startswith(f"kinetoscope.errors.NativeExtensionError: {REASON}")
    assert not [*tmp_path.iterdir()]


UNMODIFIED = """
import os, sys, torch
os.environ["KINETOSCOPE_AUTO"] = '{"out": "run"}'
import kinetoscope.auto
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(4):
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
print("trained")
sys.exit(7)
"""


@pytest.mark.parametrize("why", ["missing", "without the GIL"])
def test_an_unmodified_training_continues_unrecorded_with_one_line(tmp_path, why):
    """Without the GIL: simulated, no such Python was at hand."""
    pytest.importorskip("torch")
    before = WITHOUT if why == "missing" else "import sys\nsys._is_gil_enabled = lambda: False\n"
    reason = REASON if why == "missing" else "This Python runs without the GIL, on which the recorder relies."
    done = run_forked(TORCH_COMPILE_MODULES, before + UNMODIFIED, folder=tmp_path)
    assert (done.returncode, done.stdout) == (7, "trained\n"), done.stderr
    assert done.stderr.count(reason) == 1
    assert not [*tmp_path.iterdir()]


def test_processes_of_a_command_report_it_once_and_keep_it_for_summary(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / START_FILE).write_text("{}")
    program = WITHOUT + UNMODIFIED.replace('"out": "run"', '"out": "run", "pid": 1')
    first, second = (run_forked(TORCH_COMPILE_MODULES, program, folder=tmp_path) for _ in range(2))
    assert (first.stderr, second.stderr) == (f"kinetoscope run: nothing is recorded: {REMEDY}\n", "")
    assert find_empty_reason(tmp_path / "run") == first.stderr.rstrip("\n")


TORCH_TRAINING = """
import kinetoscope, torch
from torch.utils.data import DataLoader

loader = DataLoader(torch.ones(8, 4), batch_size=2)
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def train(batch):
    model(batch).sum().backward()
    optimizer.step()

with kinetoscope.profile("run", diagnose=True, hangs=True, slow_steps=True) as profiler:
    for batch in profiler.batches(loader):
        train(batch)
    with profiler.eval():
        [model(batch) for batch in profiler.batches(loader)]
driver = kinetoscope.profile("driven").driver
driver.start(past_step_ends_ns=[1, 2])
for batch in loader:
    driver.on_phase("forward")
    train(batch)
    driver.on_step()
driver.end()
print("trained", profiler.state.timestamp.batch)
"""


def test_a_training_with_torch_continues_unrecorded_with_one_line(tmp_path):
    pytest.importorskip("torch")
    done = run_forked(TORCH_COMPILE_MODULES, WITHOUT + TORCH_TRAINING, folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "trained 4\n"), done.stderr
    assert done.stderr == 2 * f"Nothing is recorded; training continues. {REMEDY}\n"
    assert not [*tmp_path.iterdir()]


def test_the_profiler_with_torchs_names_does_not_start(tmp_path):
    pytest.importorskip("torch")
    program = """
import kinetoscope.torch
profiler = kinetoscope.torch.profile(schedule=kinetoscope.torch.schedule(wait=3, warmup=1, active=1))
print("made")
profiler.start()
"""
    done = run_forked(TORCH_COMPILE_MODULES, WITHOUT + program, folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, "made\n"), done.stderr
    assert done.stderr.splitlines()[-1] == f"kinetoscope.errors.NativeExtensionError: {REMEDY}"


@pytest.mark.parametrize(
    "arguments", [["check", "in.json"], ["info", "in.json"], ["merge", "-o", "out.json", "in.json"], ["summary", "."],
                  ["report", "."], ["convert", "in.json", "-o", "out.pftrace"], ["diff", ".", "."], ["whatif", "."],
                  ["explain", "1", "--run", "."], ["recover", "."], ["try", "--yes", sys.executable, "-c", "pass"]],
    ids=lambda arguments: arguments[0],
)  # fmt: skip
def test_a_command_that_needs_it_reports_the_remedy_with_exit_code_2(tmp_path, arguments):
    (tmp_path / "in.json").write_text('[{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}]')
    program = f"{WITHOUT}from kinetoscope.cli import main\nsys.exit(main({arguments!r}))"
    out, err = run(program, tmp_path, status=2)
    assert (out, err) == ("", f"error: {REMEDY}\n")
    assert [path.name for path in tmp_path.iterdir()] == ["in.json"]


def test_commands_that_do_not_need_it_work(tmp_path):
    program = f"{WITHOUT}from kinetoscope.cli import main\nsys.exit(main(['explain', 'straggler']))"
    assert "the others wait for them" in run(program, tmp_path)[0]


def version(before, folder):
    return run(f"{before}\nfrom kinetoscope.cli import main\nsys.exit(main(['--version']))", folder)[0]


def test_the_version_reports_the_extension(tmp_path):
    assert version("import sys", tmp_path).endswith(" (native)\n")
    assert version(WITHOUT, tmp_path).endswith(f" (without the native extension). {REMEDY}\n")


def test_an_extension_that_cannot_be_loaded_is_named_with_its_error(tmp_path):
    before = f"""
import sys
import kinetoscope
open({str(tmp_path)!r} + "/_native.py", "w").write("raise ImportError('it was built for another machine')")
kinetoscope.__path__ = [{str(tmp_path)!r}, *kinetoscope.__path__]
"""
    assert "The native extension cannot be loaded (it was built for another machine)." in version(before, tmp_path)


RECORDING = """
import kinetoscope
from kinetoscope.testing import MemoryTraceHandler
handler = MemoryTraceHandler()
with kinetoscope.Profiler(kinetoscope.cyclic_schedule(skip_first=0, warmup=1, active=3), handler, quiet=True) as run:
    for _ in run.batches(range(4)):
        with run.marker("forward"):
            pass
print("recorded", len(handler.cycles))
"""
IN_OTHERS = """
import sys
if sys.version_info < (3, 13):
    import _xxsubinterpreters as interpreters
    def run_elsewhere(code):
        interpreter = interpreters.create(isolated=False)
        interpreters.run_string(interpreter, code)
        interpreters.destroy(interpreter)
else:
    import _interpreters as interpreters
    def run_elsewhere(code):
        interpreter = interpreters.create("legacy")
        failure = interpreters.exec(interpreter, code)
        interpreters.destroy(interpreter)
        assert failure is None, failure
"""
# No recording: msgspec, which that needs, cannot be imported in every second interpreter.
CHOOSING = "from kinetoscope.native import why_not_recorded\nprint(why_not_recorded(), flush=True)\n"


@pytest.mark.parametrize("is_first", [True, False])
def test_second_interpreter_works_without_it_next_to_the_first(tmp_path, is_first):
    other, own = f"run_elsewhere({CHOOSING!r})\n", f"exec({RECORDING!r})\n"
    out, _ = run(IN_OTHERS + (other + own if is_first else own + other), tmp_path)
    assert out.count("works in the first interpreter of a process only") == 1
    assert len(re.findall("^recorded 1$", out, re.MULTILINE)) == 1


def test_the_table_of_references_names_files_that_exist():
    readme = (ROOT / "src" / "native" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \| (.*?) \| (.*?) \|$", readme, re.MULTILINE)
    assert len(rows) > 9
    files = [path for path in (ROOT / "src").rglob("*") if path.suffix in (".c", ".cpp", ".py")]
    files += (ROOT / "tests").rglob("*.py")
    paths = ["/" + path.relative_to(ROOT).as_posix() for path in files]
    for named in re.findall(r"`([\w/]+\.(?:c|cpp|py))`", " ".join(" ".join(row) for row in rows)):
        assert any(path.endswith(f"/{named}") for path in paths), named
