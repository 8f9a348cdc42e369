"""Help of each command, answers to typical mistakes, and screens on simulated runs, as golden files.

To write them again after a change of words: ``KINETOSCOPE_GOLDEN=write pytest tests/unit/cli/test_golden.py``.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import kinetoscope.cli
from kinetoscope.cli import main
from trainsim import simulate, stories

GOLDEN = Path(__file__).parents[2] / "data" / "commands"
SAME_ARGPARSE = pytest.mark.skipif(sys.version_info >= (3, 13), reason="argparse prints options in another form")
SITE_COLUMNS = 88
"""The widest line that a page of the docs shows without clipping it."""
VERBS = sorted(kinetoscope.cli._VERBS)
MISTAKES = [
    "sumary runs/digits",
    "summary",
    "summary runs/nope",
    "summary runs/digits --jsn",
    "summary runs/digits --ranks 0-x",
    "merge rank0.json rank1.json",
    "convert trace.json",
    "run",
    "run --num-steps many python train.py",
    "explain input_bond",
    "whatif trace.json --without everything",
    "help sumary",
]
SCREENS = {
    "summary": "summary digits --no-cache",
    "whatif": "whatif digits --fix 1 --no-cache",
    "diff": "diff before digits --no-cache",
    "info": "info digits --no-cache",
    "check": "check digits",
}


def output_of(words, capsys):
    """Return the exit code and what a command prints."""
    try:
        status = main(words)
    except SystemExit as ended:
        status = ended.code
    printed = capsys.readouterr()
    return f"exit code {status}\n{printed.out}{printed.err}"


def check(name, text):
    file = GOLDEN / name
    if os.environ.get("KINETOSCOPE_GOLDEN") == "write":
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


@pytest.fixture(autouse=True)
def empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(SITE_COLUMNS + 2))  # argparse leaves two free
    monkeypatch.setattr(os, "cpu_count", lambda: 8)


@SAME_ARGPARSE
@pytest.mark.parametrize("verb", ["", *VERBS])
def test_help(verb, capsys):
    help_words = ["help", verb] if verb else []
    text = output_of(help_words, capsys)
    assert text.startswith("exit code 0\n")
    if verb:
        assert output_of([verb, "--help"], capsys) == text
    assert max(map(len, text.splitlines())) <= SITE_COLUMNS
    check(f"help_{verb or 'overview'}.txt", text)


@SAME_ARGPARSE
def test_mistakes(capsys):
    texts = [f"$ kinetoscope {line}\n{output_of(line.split(), capsys)}" for line in MISTAKES]
    assert all("\nexit code 2\nerror: " in text for text in texts)
    check("mistakes.txt", "\n".join(texts))


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Make a run with a slow metric and a straggler, and the same run without them."""
    folder = tmp_path_factory.mktemp("runs")
    simulate(replace(stories.VALUES_AND_LATE_RANK, has_memory=True)).write(folder / "digits")
    simulate(replace(stories.VALUES_AND_LATE_RANK, has_memory=True, faults=())).write(folder / "before")
    return folder


@pytest.mark.parametrize("screen", SCREENS)
def test_screen_of_a_simulated_run(screen, runs, monkeypatch, capsys):
    monkeypatch.chdir(runs)
    check(f"screen_{screen}.txt", output_of(SCREENS[screen].split(), capsys))


@pytest.mark.parametrize("word", ["version", "-V", "--version"])
def test_version(word, capsys):
    assert output_of([word], capsys).startswith("exit code 0\nkinetoscope ")
