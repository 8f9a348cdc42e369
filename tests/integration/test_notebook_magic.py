"""``%%kinetoscope`` in a real kernel: the cell does what it does, and what was found is shown below it."""

import pytest

import kinetoscope
from support.autoinstrumented_runs import frame_of
from support.notebook_kernel import run_cells

pytest.importorskip("ipykernel")
pytest.importorskip("torch")

LOOP = """
for number, batch in enumerate(loader):
    loss = model(batch).sum()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
"""
FAILING = f"{LOOP}    if number == 17:\n        "
OWN = """
with kinetoscope.profile("own", quiet=True) as profiler:
    for batch in profiler.batches(loader):
        model(batch).sum().backward()
        optimizer.step()
del profiler
"""
CELLS = {
    "load": "%load_ext kinetoscope",
    "setup": """
import json, signal, torch, kinetoscope
model = torch.nn.Linear(64, 8)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
loader = torch.utils.data.DataLoader(torch.ones(96, 64), batch_size=4)
folder = "named"
""",
    "trained": f"%%kinetoscope a folder\n{LOOP}\nnumber",
    "arguments": f"%%kinetoscope folder, torch=False, system=False\n{LOOP}\nnumber;",
    "again": f"%%kinetoscope folder, torch=False, system=False\n{LOOP}",
    "raises": f"%%kinetoscope 'raises'\n{FAILING}raise ValueError('planted')",
    "interrupted": f"%%kinetoscope 'interrupted'\n{FAILING}signal.raise_signal(signal.SIGINT)",
    "untrained": "%%kinetoscope 'untrained'\nfound = 6 * 7\nfound",
    "own": f"%%kinetoscope 'unused'\n{OWN}",
    "unknown": "%%kinetoscope 'x', shedule=None\n1",
    "left": """
from torch.optim import optimizer as of_torch
from kinetoscope.hooks.private_names import loader_iterator
left = list(of_torch._global_optimizer_post_hooks), list(of_torch._global_optimizer_pre_hooks)
left += hasattr(vars(loader_iterator.find())["__next__"], "replacement"), kinetoscope.active_profiler()
print(*left, hasattr(torch.amp.GradScaler.step, "replacement"), "profiler" in globals())
""",
    "unload": "%unload_ext kinetoscope\nprint('kinetoscope' in get_ipython().magics_manager.magics['cell'])",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("notebook")


@pytest.fixture(scope="module")
def shown(folder):
    """The outputs of each cell; one kernel runs them all."""
    return dict(zip(CELLS, run_cells(folder, CELLS.values(), allow_errors=True), strict=True))


def texts(outputs):
    return [output.data["text/plain"] for output in outputs if "data" in output]


def printed(outputs, stream="stderr"):
    return "".join(output.text for output in outputs if output.get("name") == stream)


def error_of(outputs):
    return next(((output.ename, output.traceback) for output in outputs if output.output_type == "error"), None)


def is_report_and_frame(outputs, run):
    report, frame = outputs[-2:]
    assert report.data["text/plain"].startswith(f"<kinetoscope.RunReport of {run}: 1 of 1 ranks")
    assert frame.data["text/html"].startswith("<iframe sandbox=")
    return True


def test_the_summary_and_the_report_are_shown_below_what_the_cell_shows(shown, folder):
    assert texts(shown["trained"])[0] == "23"
    assert is_report_and_frame(shown["trained"], "a folder")
    assert len(frame_of(folder / "a folder")) == 24
    assert kinetoscope.analyze(folder / "a folder").run["num_steps"] == 10


def test_the_arguments_are_those_of_profile_and_names_are_the_notebooks(shown, folder):
    assert len(texts(shown["arguments"])) == 2  # a semicolon hides what the last line gives
    assert is_report_and_frame(shown["arguments"], "named")
    assert not kinetoscope.analyze(folder / "named").operators


def test_a_cell_that_runs_again_has_a_folder_of_its_own(shown, folder):
    assert is_report_and_frame(shown["again"], "named/2")
    assert len(frame_of(folder / "named" / "2")) == 24


def test_an_error_of_the_cell_is_the_cells_and_what_was_recorded_is_shown(shown, folder):
    name, traceback = error_of(shown["raises"])
    assert name == "ValueError"
    assert not [frame for frame in traceback if "integrations/notebook.py" in frame]
    assert kinetoscope.analyze(folder / "raises").run["num_steps"] == 10
    assert [text for text in texts(shown["raises"]) if text.startswith("<kinetoscope.RunReport of raises")]


def test_ctrl_c_ends_the_cell_and_what_was_recorded_is_saved(shown, folder):
    assert error_of(shown["interrupted"])[0] == "KeyboardInterrupt"
    assert "recorded until then: kinetoscope.view('interrupted')" in printed(shown["interrupted"])
    assert kinetoscope.analyze(folder / "interrupted").run["num_steps"] == 10


def test_a_cell_that_does_not_train_says_why_nothing_was_recorded(shown, folder):
    assert texts(shown["untrained"]) == ["42"]
    assert "nothing was recorded: the cell took no step of a torch optimizer." in printed(shown["untrained"])
    assert not (folder / "untrained").exists()


def test_a_profiler_of_the_cells_own_is_left_alone(shown, folder):
    assert "nothing was recorded: this process has a Profiler of its own." in printed(shown["own"])
    assert kinetoscope.analyze(folder / "own").run["num_steps"] == 10
    assert not (folder / "unused").exists()


def test_an_unknown_argument_is_an_error_of_the_cell(shown):
    assert error_of(shown["unknown"])[0] == "TypeError"


def test_nothing_is_left_behind(shown):
    assert printed(shown["left"], "stdout").split() == ["[]", "[]", "False", "None", "False", "False"]
    assert printed(shown["unload"], "stdout").split() == ["False"]
