"""The how-to page on loops runs as shown, and that on troubleshooting lacks no variable of ours."""

import re
from pathlib import Path

import pytest

import kinetoscope

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "docs" / "how-to"
VARIABLE = re.compile(r"\bKINETOSCOPE_[A-Z][A-Z_]*\b")


@pytest.fixture
def names(tmp_path, monkeypatch):
    """The names that the code on loops and trainers uses."""
    torch = pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    dataset = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randint(2, (64,)))

    def validate(images, labels):
        return torch.nn.functional.cross_entropy(model(images), labels)

    def train(images, labels):
        loss = validate(images, labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    loader = torch.utils.data.DataLoader(dataset, batch_size=4)
    return {"loader": loader, "validation_loader": loader, "train": train, "validate": validate}


def run_code(page, names):
    for code in re.findall(r"```python\n(.*?)```", (PAGES / page).read_text(encoding="utf-8"), re.S):
        exec(compile(code, page, "exec"), names)


@pytest.mark.timeout(600)
def test_the_code_for_a_loop_of_your_own_runs_as_shown(tmp_path, names):
    run_code("my-loop.md", names)
    recorded = {path.parents[1].name: path for path in (tmp_path / "runs").glob("*/traces/merged_trace.json")}
    assert {*recorded} > {"steps", "validated", "later", "marked", "diagnosed"}
    assert [step.rank for step in names["report"].steps] == [0] * 10


def test_the_code_for_a_trainer_of_your_own_runs_as_shown(tmp_path, names):
    run_code("own-trainer.md", names)
    steps = kinetoscope.load("runs/driven").all_steps
    assert steps["step"].to_list() == list(range(48))
    assert steps["evaluation_ns"].filter(steps["evaluation_ns"] > 0).len() == 2  # the last one is after all steps
    assert len((PAGES / "own-trainer.md").read_text(encoding="utf-8").splitlines()) <= 40


def test_troubleshooting_has_every_variable_that_we_read_and_no_other():
    sources = [*(ROOT / "src").rglob("*.py"), ROOT / "setup.py"]
    read = {name for path in sources for name in VARIABLE.findall(path.read_text(encoding="utf-8"))}
    # The C asks for none; its guards of headers look like variables.
    assert [path for path in (ROOT / "src" / "native").rglob("*.[ch]*") if "getenv" in path.read_text("utf-8")] == []
    page = (PAGES / "troubleshooting.md").read_text(encoding="utf-8")
    assert read == {*VARIABLE.findall(page)}
    assert {*re.findall(r"^\| `(KINETOSCOPE_\w+)` \|", page, re.M)} == read


def test_the_errors_of_troubleshooting_are_those_of_the_code():
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "kinetoscope").rglob("*.py"))
    section = (PAGES / "troubleshooting.md").read_text(encoding="utf-8").split("## Errors\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.M)
    assert len(rows) > 10
    # Without placeholders and line breaks: "No run in ./runs" is written with the name of the folder.
    written = re.sub(r'"\n\s+f?"', "", source).replace("./{folder}", "./runs")
    assert [text for row in rows for text in re.findall("`(.*?)`", row) if text not in written] == []
