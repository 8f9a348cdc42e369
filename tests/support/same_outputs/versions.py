"""An older commit in a worktree of its own, ready to run."""

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Version:
    """A tree of this repository with an interpreter that imports its package."""

    root: Path
    python: Path

    def run(self, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run the interpreter in a folder, without the user's cache and colours."""
        environment = os.environ | {
            "XDG_CACHE_HOME": str(cwd / "cache"),
            "PYTHONPATH": str(self.root / "tests"),
            "NO_COLOR": "1",
            "COLUMNS": "80",
            "POLARS_MAX_THREADS": "1",
        }
        return subprocess.run(
            [self.python, *arguments],
            cwd=cwd,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=600,
        )


def this_version() -> Version:
    """Return the tree of this file, with the interpreter that runs it."""
    return Version(ROOT, Path(sys.executable))


@contextmanager
def version_of(commit: str, folder: Path) -> Iterator[Version]:
    """Check out and build a commit in a new worktree below ``folder``; it is removed at the end.

    Its environment has the packages that this one has, but for Kinetoscope itself.
    """
    tree, environment = folder / "base", folder / "venv"
    _call("git", "-C", ROOT, "worktree", "add", "--quiet", "--detach", tree, commit)
    try:
        _call(sys.executable, "-m", "venv", "--without-pip", environment)
        python = environment / "bin" / "python"
        (packages,) = environment.glob("lib/python*/site-packages")
        # In this order. A .pth file of the second folder, such as our own editable install, is not read.
        (packages / "base.pth").write_text(f"{tree / 'src'}\n{sysconfig.get_path('purelib')}\n", encoding="utf-8")
        for command in (["build_ext", "--inplace"], ["egg_info"]):
            _call(python, "setup.py", "--quiet", *command, cwd=tree)
        yield Version(tree, python)
    finally:
        _call("git", "-C", ROOT, "worktree", "remove", "--force", tree)


def _call(*command: str | Path, cwd: Path | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stderr}")
