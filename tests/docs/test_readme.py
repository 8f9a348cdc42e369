"""The code in the documents works as shown, and their links lead somewhere."""

import doctest
import importlib
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MODULES = ["kinetoscope.testing", "kinetoscope.recording.schedule"]


def test_the_code_in_the_readme_profiles_a_real_loop_and_once_more_when_it_is_run_again(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    model = torch.nn.Linear(4, 2)
    dataset = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randint(2, (64,)))
    names = {
        "loader": torch.utils.data.DataLoader(dataset, batch_size=4),
        "model": model,
        "loss_function": torch.nn.functional.cross_entropy,
        "optimizer": torch.optim.SGD(model.parameters()),
    }
    exec(code, names)
    exec(code, names)
    traces = list((tmp_path / "runs").glob("*/traces/merged_trace.json"))
    assert len(traces) == 2
    for path in traces:
        events = [event["name"] for event in json.loads(path.read_text())["traceEvents"]]
        assert events.count("forward") == 11, "one batch of warm-up and ten that are recorded"


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_in_docstrings_are_true(module):
    results = doctest.testmod(importlib.import_module(module))
    assert results.attempted > 0
    assert results.failed == 0


def test_every_file_that_a_document_links_to_exists():
    documents = {*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.md")}
    for document in documents - {*(ROOT / "docs" / "generated").rglob("*.md")}:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text(encoding="utf-8")):
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
