"""native.py: what `KINETOSCOPE_PURE` means, and what happens without the modules in C and C++."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kinetoscope.formats.chrome_scan import TwinScanner, new_scanner
from kinetoscope.merge.input_file import Questions
from kinetoscope.merge.merge_traces import make_rewriter
from kinetoscope.merge.pure_rewrite import PureRewriter
from kinetoscope.native import kineto_save_module, native_module, why_pure

PURE = ["1", "true", "TRUE", "yes", "On", " 1 ", "2"]
NATIVE = ["", "0", "false", "False", "no", "OFF", " 0 "]
RECORDERS = "from kinetoscope.recording.recorder_choice import ProcessRecorder; print(ProcessRecorder.__name__)"


def output_of(script: str, **environment: str) -> str:
    command = [sys.executable, "-c", script]
    done = subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, check=True, timeout=150
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("value", PURE)
def test_python_does_all_the_work_if_it_is_asked_to(monkeypatch, value):
    monkeypatch.setenv("KINETOSCOPE_PURE", value)
    assert (native_module(), kineto_save_module(), why_pure()) == (None, None, "KINETOSCOPE_PURE is set")
    assert isinstance(new_scanner(), TwinScanner)
    assert isinstance(make_rewriter(Questions()), PureRewriter)


@pytest.mark.parametrize("value", NATIVE)
def test_other_values_mean_what_no_value_means(monkeypatch, value):
    monkeypatch.delenv("KINETOSCOPE_PURE", raising=False)
    before = native_module(), kineto_save_module(), why_pure(), type(new_scanner()), type(make_rewriter(Questions()))
    monkeypatch.setenv("KINETOSCOPE_PURE", value)
    now = native_module(), kineto_save_module(), why_pure(), type(new_scanner()), type(make_rewriter(Questions()))
    assert now == before


@pytest.mark.parametrize(("value", "recorder"), [("true", "PureRecorder"), ("False", "NativeRecorder")])
def test_the_recorder_reads_the_same_values(value, recorder):
    pytest.importorskip("kinetoscope._native", reason="the module in C was not built")
    assert output_of(RECORDERS, KINETOSCOPE_PURE=value) == f"{recorder}\n"


WITHOUT_MODULES = """
import logging, sys
sys.modules["kinetoscope._native"] = sys.modules["kinetoscope._kineto_save"] = None
logging.basicConfig(level=logging.INFO, format="%(levelname)s")
from kinetoscope.native import kineto_save_module, native_module, why_pure
from kinetoscope.recording.recorder_choice import ProcessRecorder, warn_if_pure
warn_if_pure()
print(native_module(), kineto_save_module(), ProcessRecorder.__name__)
print(why_pure())
"""


def test_without_the_modules_python_does_the_work_and_says_why():
    printed = output_of(WITHOUT_MODULES, KINETOSCOPE_PURE="")
    assert "None None PureRecorder\nthis installation has no module in C; " in printed


@pytest.mark.parametrize(("value", "level"), [("0", "WARNING"), ("", "WARNING"), ("true", "INFO")])
def test_a_user_is_warned_of_the_recorder_in_python_unless_it_was_asked_for(value, level):
    assert output_of(WITHOUT_MODULES, KINETOSCOPE_PURE=value).splitlines()[-1] == level


RECORDING = """
import logging, sys
logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
{before}
import kinetoscope
from kinetoscope.native import kineto_save_module, native_module
from kinetoscope.testing import MemoryTraceHandler
handler = MemoryTraceHandler()
with kinetoscope.Profiler(kinetoscope.cyclic_schedule(skip_first=0, warmup=1, active=3), handler, quiet=True) as run:
    for _ in run.batches(range(4)):
        with run.marker("forward"):
            pass
print(native_module(), kineto_save_module(), len(handler.cycles))
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


def test_without_the_gil_python_records_and_says_why():
    """Simulated: no such Python was at hand."""
    pytest.importorskip("kinetoscope._native", reason="the module in C was not built")
    said = output_of(RECORDING.format(before="sys._is_gil_enabled = lambda: False"), KINETOSCOPE_PURE="")
    assert said.startswith("None None 1\n")
    assert said.count("this Python has no GIL, which the module in C relies on. With it a span costs") == 1


@pytest.mark.parametrize("entry", ["kinetoscope.profile(folder)", "import kinetoscope.auto"])
def test_without_the_gil_a_training_goes_unrecorded_with_one_line(entry, tmp_path):
    """Simulated: no such Python was at hand."""
    pytest.importorskip("torch")
    said = output_of(
        f"import sys, os; sys._is_gil_enabled = lambda: False\nimport kinetoscope\nfolder = {str(tmp_path / 'run')!r}\n"
        f"os.environ['KINETOSCOPE_AUTO'] = '{{\"out\": \"' + folder + '\"}}'\n"
        f"sys.stderr = sys.stdout\nimport logging; logging.basicConfig(stream=sys.stdout)\n"
        f"made = {entry!r}\nexec(made)\n",
        KINETOSCOPE_PURE="",
    )
    assert said.count("This Python runs without the GIL") == 1
    assert not (tmp_path / "run").exists()


# No recording: msgspec, which that needs, cannot be imported in every second interpreter.
CHOOSING = """
import logging
logging.basicConfig(format="%(levelname)s %(message)s")
from kinetoscope.native import kineto_save_module, native_module
from kinetoscope.recording.recorder_choice import ProcessRecorder, warn_if_pure
warn_if_pure()
print(native_module(), kineto_save_module(), ProcessRecorder.__name__)
"""


@pytest.mark.parametrize("is_first", [True, False])
def test_a_second_interpreter_gets_the_recorder_in_python_and_says_why_beside_the_first(is_first):
    pytest.importorskip("kinetoscope._native", reason="the module in C was not built")
    others, own = f"run_elsewhere({CHOOSING!r})\n", f"exec({RECORDING.format(before='')!r})\n"
    said = output_of(IN_OTHERS + (others + own if is_first else own + others), KINETOSCOPE_PURE="")
    assert said.count("None None PureRecorder\n") == 1
    assert len(re.findall(r"^<module 'kinetoscope._native' .* 1$", said, re.MULTILINE)) == 1
    assert said.count("works in the first interpreter of a process only") == 1


def test_a_module_that_cannot_be_loaded_is_named_with_its_error(tmp_path):
    script = f"""
import kinetoscope
open({str(tmp_path)!r} + "/_native.py", "w").write("raise ImportError('it was built for another machine')")
kinetoscope.__path__ = [{str(tmp_path)!r}, *kinetoscope.__path__]
from kinetoscope.native import why_pure
print(why_pure())
"""
    said = output_of(script, KINETOSCOPE_PURE="")
    assert said == "the module in C cannot be loaded here (it was built for another machine)\n"


ROOT = Path(__file__).parents[2]


def test_the_table_of_twins_names_files_that_exist():
    readme = (ROOT / "src" / "native" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.*?) \| (.*?) \| (.*?) \|$", readme, re.MULTILINE)
    assert len(rows) > 9
    files = [path for path in (ROOT / "src").rglob("*") if path.suffix in (".c", ".cpp", ".py")]
    files += (ROOT / "tests").rglob("*.py")
    paths = ["/" + path.relative_to(ROOT).as_posix() for path in files]
    for named in re.findall(r"`([\w/]+\.(?:c|cpp|py))`", " ".join(" ".join(row) for row in rows)):
        assert any(path.endswith(f"/{named}") for path in paths), named
