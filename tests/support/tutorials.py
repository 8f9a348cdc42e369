"""Follows a tutorial as a reader does: saves its files and runs its commands, in the order of the page."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"(?:^|\n)```(\w+)\n(.*?)```", re.S)
SAVED = re.compile(r"as\s`(\w+\.py)`")


def page_of(name: str) -> str:
    return (ROOT / "docs" / "tutorials" / f"{name}.md").read_text(encoding="utf-8")


class Reader:
    """Does what a page says in a folder, and keeps what the commands print and what the page shows of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.printed: list[str] = []
        self.shown: list[str] = []
        self.environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        self.environment |= {"COLUMNS": "88", "OMP_NUM_THREADS": "1", "PYTHONPATH": ""}

    def follow(self, page: str, until: str | None = None) -> None:
        """To the page's end, or to the first command that begins with ``until``."""
        end = 0
        for block in BLOCK.finditer(page):
            before, end = page[end : block.start()], block.end()
            self._do(block[1], block[2], before)
            if until and block[2].startswith(until):
                return

    def _do(self, language: str, text: str, before: str) -> None:
        if language == "python":
            (self.folder / SAVED.findall(before)[-1]).write_text(text, encoding="utf-8")
        elif language == "sh":
            for command in text.splitlines():
                self._run(command)
        else:
            assert language == "text", f"{language} is neither a file, nor a command, nor what one prints"
            self.shown.append(text)

    def _run(self, command: str) -> None:
        done = subprocess.run(
            command, shell=True, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=300
        )
        # `diff` exits with 1 if something got slower. On a busy machine the verdict may be inconclusive, which is 3.
        assert done.returncode in ((0, 1, 3) if " diff " in command else (0,)), done.stderr
        self.printed.append(done.stdout + done.stderr)
