"""``%%kinetoscope`` in an IPython shell of this process."""

import atexit
import sys

import pytest

from kinetoscope.errors import SettingsError
from kinetoscope.integrations import notebook
from support.autoinstrumented_runs import frame_of

pytest.importorskip("torch")
InteractiveShell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell
FAST = "folder, torch=False, system=False"
LOOP = """
import torch
optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1))])
for number in range(13):
    optimizer.step()
"""


@pytest.fixture
def run_cell(tmp_path, monkeypatch):
    """A function that runs a cell, by the line after the magic and the code, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / ".ipython"))
    shell = InteractiveShell(user_ns={"folder": "runs/x"})
    notebook.load_ipython_extension(shell)
    yield lambda line, cell="pass": shell.run_cell_magic("kinetoscope", line, cell)
    notebook.unload_ipython_extension(shell)
    assert "kinetoscope" not in shell.magics_manager.magics["cell"]
    atexit.unregister(shell.atexit_operations)
    shell.atexit_operations()


@pytest.mark.parametrize("line", ["'runs/x", "--diagnos runs/x", "-o runs/x"])
def test_a_line_that_is_no_arguments_is_refused_with_the_forms_there_are(run_cell, line):
    with pytest.raises(SettingsError, match=r"After %%kinetoscope.*%%kinetoscope --diagnose runs/mine"):
        run_cell(line)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", {}),
        ("runs/mine", {"out": "runs/mine"}),
        (" my runs ", {"out": "my runs"}),
        ("folder", {"out": "folder"}),
        ("'a, b'", {"out": "a, b"}),
        ("folder, ", {"out": "runs/x"}),
        ("out=folder", {"out": "runs/x"}),
        ("str(folder)", {"out": "runs/x"}),
        ("folder, quiet=False", {"out": "runs/x", "quiet": False}),
        ("--diagnose", {"diagnose": True}),
        ("--diagnose runs/x", {"out": "runs/x", "diagnose": True}),
        ("my runs --diagnose", {"out": "my runs", "diagnose": True}),
        ("--diagnose 'runs/x'", {"out": "runs/x", "diagnose": True}),
        ("folder, torch=False --diagnose", {"out": "runs/x", "torch": False, "diagnose": True}),
    ],
)
def test_a_line_is_a_folder_or_the_arguments_of_profile(run_cell, line, expected, monkeypatch):
    made = []
    monkeypatch.setattr(notebook, "ProfileArguments", lambda out="", **options: made.append({"out": out, **options}))
    run_cell(line)
    assert made == [{"out": "", "quiet": True, **expected}]


def test_training_in_a_cell_is_recorded_and_shown_after_the_value_of_the_cell(run_cell, tmp_path, capsys):
    run_cell(FAST, f"{LOOP}\nnumber")
    assert len(frame_of(tmp_path / "runs" / "x")) == 13
    value, report = capsys.readouterr().out.splitlines()[:2]
    assert value == "12"
    assert report.startswith("<kinetoscope.RunReport of x: ")


def test_a_cell_that_fails_or_is_interrupted_raises_after_its_recording_is_saved(run_cell, tmp_path, capsys):
    with pytest.raises(ValueError, match="planted"):
        run_cell(FAST, f"{LOOP}\nraise ValueError('planted')")
    assert "<kinetoscope.RunReport of x: " in capsys.readouterr().out
    with pytest.raises(KeyboardInterrupt):
        run_cell(FAST, f"{LOOP}\nraise KeyboardInterrupt")
    output = capsys.readouterr()
    assert (output.out, output.err) == ("", "Kinetoscope: recorded until then: kinetoscope.view('runs/x/2')\n")
    assert len(frame_of(tmp_path / "runs" / "x" / "2")) == 13


@pytest.mark.parametrize(
    ("has_torch", "reason"), [(True, "the cell took no step of a torch optimizer"), (False, "torch is not installed")]
)
def test_a_cell_without_training_runs_and_the_reason_is_printed(
    run_cell, tmp_path, capsys, monkeypatch, has_torch, reason
):
    if not has_torch:
        monkeypatch.setitem(sys.modules, "torch", None)
    run_cell(FAST, "7; 6 * 7")
    run_cell(FAST, "6 * 7;")
    assert capsys.readouterr() == ("42\n", f"Kinetoscope: nothing was recorded: {reason}.\n" * 2)
    assert not (tmp_path / "runs").exists()
