"""Every block of code in a document runs as shown, or says why it does not."""

import ast
import gzip
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

import kinetoscope
from support.fork_server import run_command

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    if "generated" not in path.parts
)
RUN_ELSEWHERE = {
    "README.md": "test_readme.py",
    "docs/how-to/own-trainer.md": "test_how_to.py",
    "docs/privacy.md": "test_privacy_page.py",
} | {path: "test_tutorials.py" for path in DOCUMENTS if path.startswith("docs/tutorials/")}
MARK = re.compile(r"<!-- not run here: \S.* -->")
MARK_OF_PAGE = re.compile(r"^<!-- no block of this page is run: \S.* -->$", re.M)
OUTPUTS = ("text",)
"""Output and drawings in a block of this kind; there is nothing to run."""
WHOLE_BLOCKS = MarkdownIt().disable("inline")
"""Finds the blocks of a page, and takes no time for what is in its sentences."""
CODES = {"diff": (0, 1, 3), "upload": (0, 1)}
"""The exit codes that the pages name, of commands that may end otherwise than with 0."""


def blocks(document):
    """Yield the blocks of code of a document, also in tabs: each with its language, text and the mark before it."""
    yield from blocks_in((ROOT / document).read_text(encoding="utf-8"))


def blocks_in(text):
    before = None
    for token in WHOLE_BLOCKS.parse(text):
        if token.info.startswith(("{tab-set}", "{tab-item}")):
            yield from blocks_in(token.content)
        elif token.type in ("fence", "code_block") and not token.info.startswith("{"):
            mark = before.content.strip() if before is not None and before.type == "html_block" else ""
            yield token.info.strip(), token.content, mark
        before = token


def blocks_to_run(document):
    if MARK_OF_PAGE.search((ROOT / document).read_text(encoding="utf-8")):
        return []
    return [(info, text) for info, text, mark in blocks(document) if not MARK.fullmatch(mark) and info not in OUTPUTS]


HERE = [document for document in DOCUMENTS if document not in RUN_ELSEWHERE and blocks_to_run(document)]


@pytest.mark.parametrize("document", DOCUMENTS)
def test_each_block_is_code_that_a_test_runs_or_says_why_it_is_not(document):
    languages = {info for info, _ in blocks_to_run(document)}
    assert languages <= {"python", "sh"}, "mark what is not run with <!-- not run here: the reason -->"
    if document in RUN_ELSEWHERE:
        runs_shell = RUN_ELSEWHERE[document] in ("test_tutorials.py", "test_readme.py")
        assert "sh" not in languages or runs_shell, "only its Python is run"
        assert Path(__file__).with_name(RUN_ELSEWHERE[document]).exists()


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with the runs of a script, and the traces of torch's profiler, that the pages name."""
    torch = pytest.importorskip("torch")
    folder = tmp_path_factory.mktemp("pages")
    names = training(torch)
    schedule = kinetoscope.cyclic_schedule(skip_first=2, warmup=1, active=10, per="run")
    operators = kinetoscope.TorchProfiler(record_shapes=True)  # it leaves Kineto's own file
    with kinetoscope.profile(folder / "runs" / "digits", schedule=schedule, torch=operators, quiet=True) as profiler:
        for images, labels in profiler.batches(names["loader"]):
            names["train"](images, labels)
    for name in ("main", "mine"):
        shutil.copytree(folder / "runs" / "digits", folder / "runs" / name)
    (theirs,) = (folder / "runs" / "digits" / "torch_traces").glob("*.json")
    for name in ("trace.json", "log/rank0.json", "old/rank0.json", "old/rank1.json"):
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(theirs, folder / name)
    (folder / "rank0.pt.trace.json.gz").write_bytes(gzip.compress(theirs.read_bytes()))
    return folder


def training(torch):
    """Return the names that the pages take for granted: a loader and what is done with its batches."""
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    dataset = torch.utils.data.TensorDataset(torch.randn(80, 4), torch.randint(2, (80,)))

    def validate(images, labels):
        return torch.nn.functional.cross_entropy(model(images), labels)

    def train(*batch):
        images, labels = batch if len(batch) == 2 else batch[0]
        optimizer.zero_grad()
        loss = validate(images, labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    loader = torch.utils.data.DataLoader(dataset, batch_size=4)
    return {"loader": loader, "validation_loader": loader, "train": train, "validate": validate, "model": model}


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("separate_variants")
@pytest.mark.parametrize("document", HERE)
def test_the_blocks_of_a_page_run_as_shown_in_their_order(document, runs, tmp_path, monkeypatch):
    shutil.copytree(runs, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    names = training(pytest.importorskip("torch")) | {"kinetoscope": kinetoscope, "pl": pytest.importorskip("polars")}
    for language, text in blocks_to_run(document):
        if language == "python":
            run_python(text, document, names)
        else:
            for command in text.replace("\\\n", " ").splitlines():
                run_shell(command, tmp_path)


def run_python(text, document, names):
    """Run a block; the tables that it ends with have rows, but for those of kernels, which the CPU has none of."""
    tree = ast.parse(text)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, document, "exec"), names)
    if last is not None:
        shown = eval(compile(ast.Expression(last.value), document, "eval"), names)
        assert not isinstance(shown, names["pl"].DataFrame) or len(shown) or '"kernel"' in text, text


def run_shell(command, folder):
    """Run one line of a shell; our own command in a process that has imported it already, where that is all."""
    line = command.partition(" #")[0].strip()
    verb = line.split(maxsplit=2)[1] if line.startswith("kinetoscope ") else ""
    environment = os.environ | {"COLUMNS": "100", "BROWSER": "true"}
    if re.fullmatch(r"kinetoscope [\w ./:=-]+", line):
        done = run_command(*line.split()[1:], folder=folder, environment=environment)
    else:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        shell = ["bash", "-c", line]
        done = subprocess.run(
            shell, cwd=folder, env=environment | {"PATH": path}, capture_output=True, text=True, timeout=150
        )
    assert done.returncode in CODES.get(verb, (0,)), f"{line}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
