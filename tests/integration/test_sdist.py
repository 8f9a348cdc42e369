"""The sdist has all that git has, but what only the repository needs, and nothing that was built or left here."""

import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

import kinetoscope

ROOT = Path(__file__).parents[2]
OF_THE_REPOSITORY = (".github/", ".gitignore")
MADE_BY_SETUPTOOLS = ("PKG-INFO", "setup.cfg", "src/kinetoscope.egg-info/")
LEFT_HERE = (
    "src/kinetoscope/_native.abi3.so",
    "tests/__pycache__/conftest.cpython-311.pyc",
    "benchmarks/results/reading.local.json",
    "web/node_modules/react/index.js",
    ".venv/lib/python3.11/site-packages/six.py",
    "dist/kinetoscope-0.0.1.tar.gz",
    "build/lib/kinetoscope/__init__.py",
    "runs/digits/traces/merged_trace.json",
)


def tracked_files():
    command = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-z"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs git")
    if done.returncode or not (ROOT / ".git").exists():
        pytest.skip("this is not the repository")
    return [name for name in done.stdout.decode().split("\0") if name and (ROOT / name).is_file()]


@pytest.fixture
def tree(tmp_path):
    """Return the files of git, with those of a developer's folder next to it."""
    for name in tracked_files():
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, tmp_path / "tree" / name)
    for name in LEFT_HERE:
        (tmp_path / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / name).write_bytes(b"left here")
    return tmp_path / "tree"


def build_sdist(tree):
    """Return the names in the sdist, and its name."""
    script = "import setuptools.build_meta as m; m.build_sdist('../built')"
    done = subprocess.run([sys.executable, "-c", script], cwd=tree, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (sdist,) = (tree.parent / "built").iterdir()
    with tarfile.open(sdist) as files:
        return sdist.name, {member.name.partition("/")[2] for member in files if member.isfile()}


@pytest.mark.timeout(600)  # it waits for the disk
def test_the_sdist_has_what_git_has_and_nothing_else(tree):
    name, found = build_sdist(tree)
    assert name == f"kinetoscope-{kinetoscope.__version__}.tar.gz"
    packaged = {path for path in found if not path.startswith(MADE_BY_SETUPTOOLS)}
    assert packaged == {path for path in tracked_files() if not path.startswith(OF_THE_REPOSITORY)}
