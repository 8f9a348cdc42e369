"""The tutorials work as a reader does them: files saved, and commands run, in the order of the page."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

PAGES = Path(__file__).parents[2] / "docs" / "tutorials"
BLOCK = re.compile(r"(?:^|\n)```(\w+)\n(.*?)```", re.S)
SAVED = re.compile(r"as `(\w+\.py)`")
NUMBER = re.compile(r"\d[\d,.]*")
ALWAYS = (
    "loss: ",
    "Kinetoscope: 1 window",
    "Of 36 steps, 10",
    "kinetoscope explain input_bound",
    "before: slow",
    "after: ",
)
"""How lines begin that the page shows and every machine prints, but for the numbers."""


class Reader:
    """Does what a page says, and keeps what the commands print."""

    def __init__(self, folder):
        self.folder, self.printed, self.shown = folder, [], []
        self.environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        self.environment |= {"COLUMNS": "100", "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}

    def follow(self, page):
        end = 0
        for block in BLOCK.finditer(page):
            before, end = page[end : block.start()], block.end()
            self.do(block[1], block[2], before)

    def do(self, language, text, before):
        if language == "python":
            (self.folder / SAVED.findall(before)[-1]).write_text(text, encoding="utf-8")
        elif language == "sh":
            for command in text.splitlines():
                self.run(command)
        else:
            assert language == "text", f"{language} is neither a file, nor a command, nor what one prints"
            self.shown.append(text)

    def run(self, command):
        done = subprocess.run(
            command, shell=True, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=150
        )
        # `diff` says with 3 that it cannot tell, as on a busy machine.
        assert done.returncode in ((0, 3) if " diff " in command else (0,)), done.stderr
        self.printed.append(done.stdout + done.stderr)


def without_numbers(text):
    """A text on one line, with a sign in place of each number: times differ from machine to machine."""
    return NUMBER.sub("#", " ".join(text.split()))


def findings(summary):
    """The findings that a summary prints, from the title to the command of each."""
    return re.findall(r"^\d+\. (.*?kinetoscope explain \w+) *$", summary, re.M | re.S)


@pytest.mark.skipif(
    "KINETOSCOPE_ALL_TRAININGS" not in os.environ, reason="in make test-long: a busy machine finds more"
)
@pytest.mark.timeout(600)
def test_the_slow_data_set_is_found_by_its_line_and_mended_with_the_same_loss(tmp_path):
    page = (PAGES / "data-loading.md").read_text(encoding="utf-8")
    reader = Reader(tmp_path)
    reader.follow(page)
    run, summary, chapter, _, mended_run, mended, comparison = reader.printed
    code = re.search(r"```python\n(.*?)```", page, re.S)[1].splitlines()
    slow_line = next(number for number, line in enumerate(code, 1) if "float(text)" in line)
    # On a busy machine another finding comes first, as the page says.
    found = [finding for finding in findings(summary) if not finding.endswith("processor_contention")]
    assert found[0].startswith("The loop waits for its data")
    assert f"readings.py:{slow_line}" in found[0]
    assert found[0].endswith("kinetoscope explain input_bound")
    assert chapter.startswith("input_bound")
    assert "readings.py" not in "".join(findings(mended))
    assert (tmp_path / "runs" / "slow" / "report.html").stat().st_size > 100_000
    assert loss_in(run) == loss_in(mended_run)
    assert "after:  mended, 1 rank, 10 steps" in comparison
    printed = without_numbers("\n".join(reader.printed))
    lines = [line.strip() for text in reader.shown for line in text.splitlines()]
    for begin in ALWAYS:
        shown = [without_numbers(line) for line in lines if line.startswith(begin)]
        assert [line in printed for line in shown] == [True] * max(len(shown), 1), begin


def loss_in(printed):
    return re.search(r"^loss: .*$", printed, re.M)[0]
