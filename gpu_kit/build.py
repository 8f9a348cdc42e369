"""Builds the kit: ``python -m gpu_kit.build FOLDER`` (``make gpu-kit``).

The folder gets `run`, the modules that travel, ``tests/gpu`` with what it imports, the benchmarks, and wheels: ours and
those of our dependencies that a GPU machine lacks. Needs a network.
"""

import ast
import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHONS = ("3.11", "3.12", "3.13")
MACHINE_PACKAGES = {"torch", "numpy", "jinja2", "psutil", "rich", "pytest", "hypothesis", "nvidia-ml-py"}
"""Packages that a GPU machine is expected to have."""

ANALYSIS_ONLY = {"polars"}
"""Dependencies for the analysis of traces, which is done elsewhere; polars has 54 MB."""

MAX_MIB = 60
"""The limit of the kit and of the tracked files together."""

_PLATFORMS = ("manylinux_2_28", "manylinux_2_27", "manylinux_2_17", "manylinux2014", "manylinux_2_5", "manylinux1")
_EXCLUDED = ("build.py", "judging", "judge.py", "run")
_SUPPORT = "support"
_PYTEST_INI = """\
[pytest]
addopts = --import-mode=importlib --strict-markers
pythonpath = tests
markers =
    reports_errors: the profiler reports errors in the log, and is meant to
"""


def main(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _copy_modules(folder)
    _copy_tests(folder / "tests")
    (folder / "pytest.ini").write_text(_PYTEST_INI, encoding="utf-8")
    _build_wheel(folder / "wheels")
    for version in PYTHONS:
        _download(select_requirements(), version, folder / "wheels")
    (folder / "kit.json").write_text(json.dumps(_describe(folder / "wheels")) + "\n", encoding="utf-8")
    sizes = _sum_mib(path for path in folder.rglob("*") if path.is_file()), _sum_mib(_list_tracked())
    print(f"{folder}: {sizes[0]:.1f} MiB, with the {sizes[1]:.1f} MiB of tracked files {sum(sizes):.1f} MiB.")
    if sum(sizes) > MAX_MIB:
        sys.exit(f"Together they must be smaller than {MAX_MIB} MiB.")


def select_requirements() -> list[str]:
    """Return our requirements that neither a GPU machine has nor the analysis alone needs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {requirement: requirement.partition(">")[0].strip() for requirement in project["dependencies"]}
    return [requirement for requirement, name in names.items() if name not in MACHINE_PACKAGES | ANALYSIS_ONLY]


def _copy_modules(folder: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc", *_EXCLUDED)
    shutil.copytree(ROOT / "gpu_kit", folder / "gpu_kit", ignore=ignored)
    shutil.copytree(ROOT / "benchmarks", folder / "benchmarks", ignore=shutil.ignore_patterns("__pycache__", "results"))
    shutil.copy2(ROOT / "gpu_kit" / "run", folder / "run")


def _copy_tests(folder: Path) -> None:
    """Copy ``tests/gpu``, the fixtures, and the modules of ``tests`` that these import."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tests" / "gpu", folder / "gpu", ignore=ignored)
    open_files = [ROOT / "tests" / "conftest.py", *(ROOT / "tests" / "gpu").glob("*.py")]
    shutil.copy2(open_files[0], folder)
    (folder / _SUPPORT).mkdir()
    shutil.copy2(ROOT / "tests" / _SUPPORT / "__init__.py", folder / _SUPPORT)
    copied = {_SUPPORT}
    while open_files:
        for name in sorted(_find_imported_modules(open_files.pop()) - copied):
            copied.add(name)
            source, target = (base.joinpath(*name.split(".")) for base in (ROOT / "tests", folder))
            if (source / "__init__.py").exists():
                shutil.copytree(source, target, ignore=ignored, dirs_exist_ok=True)
                open_files += source.glob("*.py")
            elif (module := source.with_suffix(".py")).exists():
                target.parent.mkdir(exist_ok=True)
                shutil.copy2(module, target.parent)
                open_files.append(module)


def find_imported_packages(path: Path) -> set[str]:
    """Return the top-level packages that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


def _find_imported_modules(path: Path) -> set[str]:
    """Return the dotted names of all modules that a file may import, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def _build_wheel(folder: Path) -> None:
    for old in (ROOT / "build").glob("lib*"):
        shutil.rmtree(old)  # setuptools would put modules of an earlier build into the wheel
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-cache-dir"]
    command += ["--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True)


def _download(requirements: list[str], version: str, folder: Path) -> None:
    """Download wheels for x86-64 Linux and one version of Python, each by its name alone."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    command += ["--dest", str(folder), "--python-version", version, "--implementation", "cp"]
    command += [word for platform in _PLATFORMS for word in ("--platform", f"{platform}_x86_64")]
    subprocess.run([*command, *requirements], check=True)


def _describe(wheels: Path) -> dict[str, str]:
    version = next(wheels.glob("kinetoscope-*.whl")).name.split("-")[1]
    command = ["git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"]
    done = subprocess.run(command, capture_output=True, text=True)
    return {"version": version, "commit": done.stdout.strip() or "unknown"}


def _list_tracked() -> list[Path]:
    done = subprocess.run(["git", "-C", str(ROOT), "ls-files", "-z"], capture_output=True, text=True)
    return [path for name in done.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def _sum_mib(paths: Iterable[Path]) -> float:
    return sum(path.stat().st_size for path in paths) / 2**20


if __name__ == "__main__":
    main(Path(sys.argv[1]))
