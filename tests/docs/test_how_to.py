"""How-to pages are short and end in a result; the pages of variables and errors agree with the code."""

import re
from pathlib import Path

import pytest

import kinetoscope

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted((DOCS / "how-to").glob("*.md"))
MAX_LINES = 40
VARIABLE = re.compile(r"\bKINETOSCOPE_[A-Z][A-Z_]*\b")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_how_to_is_short_and_ends_in_a_result(page):
    text = page.read_text(encoding="utf-8")
    assert text.count("\n") <= MAX_LINES, "move what is reference to a page of the reference"
    assert re.findall(r"^#+ .*", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.M)[1:] == ["## Result"]


@pytest.mark.timeout(600)
def test_the_code_for_a_trainer_of_your_own_runs_as_shown(tmp_path, monkeypatch):
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
    names = {"loader": loader, "validation_loader": loader, "train": train, "validate": validate}
    page = (DOCS / "how-to" / "own-trainer.md").read_text(encoding="utf-8")
    for code in re.findall(r"```python\n(.*?)```", page, re.S):
        exec(compile(code, "own-trainer.md", "exec"), names)
    steps = kinetoscope.load("runs/driven").all_steps
    assert steps["step"].to_list() == list(range(48))
    assert steps["evaluation_ns"].filter(steps["evaluation_ns"] > 0).len() == 2  # the last one is after all steps


def test_the_page_of_variables_has_every_variable_that_we_read_and_no_other():
    sources = [*(ROOT / "src").rglob("*.py"), ROOT / "setup.py"]
    read = {name for path in sources for name in VARIABLE.findall(path.read_text(encoding="utf-8"))}
    # The C asks for none; its guards of headers look like variables.
    assert [path for path in (ROOT / "src" / "native").rglob("*.[ch]*") if "getenv" in path.read_text("utf-8")] == []
    page = (DOCS / "environment.md").read_text(encoding="utf-8")
    assert read == {*VARIABLE.findall(page)}
    assert {*re.findall(r"^\| `(KINETOSCOPE_\w+)` \|", page, re.M)} == read


def test_the_errors_of_the_page_of_messages_are_those_of_the_code():
    source = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "kinetoscope").rglob("*.py"))
    sections = (DOCS / "messages.md").read_text(encoding="utf-8").partition("## Errors\n")[2].split("\n## ")[:2]
    rows = [row for section in sections for row in re.findall(r"^\| (`.*?) \|", section, re.M)]
    assert len(rows) > 15
    # Without placeholders and line breaks: "No run in ./runs" is written with the name of the folder.
    written = re.sub(r'"\n\s+f?"', "", source).replace("./{folder}", "./runs")
    assert [text for row in rows for text in re.findall("`(.*?)`", row) if text not in written] == []
