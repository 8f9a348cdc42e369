"""Builds what is published, and tries it in fresh environments: ``python make_dist.py FOLDER`` (``make dist``).

FOLDER gets the sdist, and a wheel for this machine that is built from it. twine, abi3audit and auditwheel check them.
Then each is installed, and tried by `smoke.py`, on every Python of this machine that it is for. Without a compiler the
sdist must fail, and name the remedy. Older Pythons must refuse the wheel. Needs a network.
"""

import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SMOKE = Path(__file__).with_name("smoke.py")
ASK = """
import json, platform, sys, sysconfig
takes_c = platform.python_implementation() == "CPython" and not sysconfig.get_config_var("Py_GIL_DISABLED")
print(json.dumps([list(sys.version_info[:3]), getattr(sys, "base_prefix", sys.prefix), takes_c]))
"""
NEEDS = "import importlib.metadata as m; [print(r) for r in m.requires('kinetoscope') if 'extra ==' not in r]"
OLDEST = (3, 11)
REFUSALS = re.compile(r"requires a different Python|not a supported wheel|requires Python '>=3\.11'")
# Tests that need no torch, run from the sdist against what was installed: the sdist has what they need.
OWN_TESTS = ("tests/unit/core/clock", "tests/unit/core/text", "tests/unit/frames")
TOOLS_OF_TESTS = ("pytest>=8", "pytest-timeout", "hypothesis")


class DistError(Exception):
    """Something that must not be published, in one sentence."""


@dataclass(frozen=True)
class Interpreter:
    """A Python of this machine. The C is for CPython with the GIL."""

    path: Path
    version: tuple[int, ...]
    name: str
    takes_c: bool

    @property
    def is_new_enough(self) -> bool:
        return self.version >= OLDEST


@dataclass(frozen=True)
class Installation:
    """One way to install: a file, with a compiler or without one."""

    file: Path
    has_compiler: bool

    def __str__(self) -> str:
        with_one = "with a compiler" if self.has_compiler else "without a compiler"
        return f"{self.file.name}, {with_one}" if self.file.suffix == ".gz" else self.file.name

    @property
    def is_refused(self) -> bool:
        """True for sources without a compiler, which must fail."""
        return self.file.suffix == ".gz" and not self.has_compiler


def main(folder: Path) -> None:
    sdist, wheel = build_all(folder)
    check_files(sdist, wheel)
    installations = [Installation(wheel, False), Installation(sdist, True), Installation(sdist, False)]
    failures = list(try_all(installations))
    if failures:
        raise DistError("\n".join(["Not to be published:", *failures]))
    print(f"\nIn {folder}: {', '.join(file.name for file in (sdist, wheel))}. Nothing was uploaded.")


# -- build ----------------------------------------------------------------------------------------------------


def build_all(folder: Path) -> tuple[Path, Path]:
    """Build the sdist and the wheel, the only files of ours in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("kinetoscope-*"):
        old.unlink()
    run(sys.executable, "-m", "build", "--sdist", "--outdir", folder, ROOT)
    (sdist,) = folder.glob("kinetoscope-*.tar.gz")
    pip("wheel", "--no-deps", "--no-cache-dir", "--wheel-dir", folder, sdist)
    (wheel,) = folder.glob("*.whl")
    return sdist, wheel


# -- check ----------------------------------------------------------------------------------------------------


def check_files(sdist: Path, wheel: Path) -> None:
    require("-cp311-abi3-linux_" in wheel.name, f"{wheel.name} is no wheel for all Pythons")
    require(len(modules_in(wheel)) == 2, f"{wheel.name} has the modules {modules_in(wheel)}")
    require(len(top_folders(wheel)) == 2, f"{wheel.name} installs {top_folders(wheel)}")
    require(not (built := built_files_in(sdist)), f"{sdist.name} has built files: {built}")
    run(sys.executable, "-m", "twine", "check", "--strict", sdist, wheel)
    run(sys.executable, "-m", "abi3audit", "--strict", "--summary", wheel)
    print(run(sys.executable, "-m", "auditwheel", "show", wheel))


def modules_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as files:
        return [name for name in files.namelist() if name.endswith(".so")]


def top_folders(wheel: Path) -> set[str]:
    """Return the package and its metadata, if nothing else is in the wheel."""
    with zipfile.ZipFile(wheel) as files:
        return {name.partition("/")[0] for name in files.namelist()}


def built_files_in(sdist: Path) -> list[str]:
    with tarfile.open(sdist) as files:
        return [name for name in files.getnames() if re.search(r"\.so$|\.pyc$|node_modules|__pycache__", name)]


# -- install --------------------------------------------------------------------------------------------------


def try_all(installations: list[Installation]) -> Iterator[str]:
    """Report how each installation went on each Python; yield a sentence for each that failed."""
    for interpreter in interpreters():
        if not interpreter.is_new_enough:
            yield from attempt(interpreter, "must refuse it", lambda on: check_refusal(on, installations[0].file))
            continue
        for way in installations if interpreter.takes_c else []:
            yield from attempt(interpreter, str(way), lambda on, way=way: check_installation(on, way))


def attempt(interpreter: Interpreter, what: str, check) -> Iterator[str]:
    begin_s = time.monotonic()
    try:
        output = check(interpreter)
    except DistError as error:
        output = "FAILED, see below"
        yield f"Python {interpreter.name} ({interpreter.path}), {what}: {error}"
    took_s = time.monotonic() - begin_s
    print(f"Python {interpreter.name:8} {what}: {output.splitlines()[-1]} ({took_s:.0f} s)", flush=True)


def interpreters() -> list[Interpreter]:
    """Return every Python of this machine: those on PATH, those of pyenv, and the one that runs this; each once."""
    folders = [Path(folder) for folder in os.environ.get("PATH", "").split(os.pathsep) if folder]
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    folders += [path / "bin" for path in sorted((root / "versions").glob("*"))]
    found: dict[Path, Interpreter] = {}
    for path in [Path(sys.executable), *(path for folder in folders for path in sorted(folder.glob("python*")))]:
        if re.fullmatch(r"python(\d(\.\d+)?t?)?", path.name) and (interpreter := ask(path)) is not None:
            found.setdefault(interpreter.path, interpreter)
    return sorted(found.values(), key=lambda interpreter: interpreter.version)


def ask(path: Path) -> Interpreter | None:
    """Return the Python behind a path, also behind a shim or an environment; None if there is none."""
    done = subprocess.run([str(path), "-c", ASK], capture_output=True, text=True)
    if done.returncode:
        return None
    version, prefix, takes_c = json.loads(done.stdout)
    for name in (f"python{version[0]}.{version[1]}", f"python{version[0]}"):
        if (home := Path(prefix, "bin", name)).exists():
            return Interpreter(home.resolve(), tuple(version), ".".join(map(str, version)), takes_c)
    return None


def check_refusal(interpreter: Interpreter, wheel: Path) -> str:
    with tempfile.TemporaryDirectory() as folder:
        command = [interpreter.path, "-m", "pip", "install", "--no-deps", "--no-index", "--target", folder, wheel]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    require(done.returncode != 0, "pip installed it")
    require(bool(REFUSALS.search(done.stderr + done.stdout)), f"pip failed for another reason:\n{done.stderr}")
    return "refused"


def check_installation(interpreter: Interpreter, way: Installation) -> str:
    """Install it in a fresh environment, try it, and remove it; nothing of it may stay."""
    with tempfile.TemporaryDirectory(prefix="kinetoscope-dist-") as name:
        folder = Path(name)
        run(interpreter.path, "-m", "venv", "--without-pip", folder / "env")
        python = folder / "env" / "bin" / "python"
        if way.is_refused:
            return check_refused_build(way, python)
        install(way, python)
        output = run(python, SMOKE, cwd=folder)
        if way.has_compiler:
            output += try_own_tests(python, way.file, folder)
        pip("uninstall", "--yes", "kinetoscope", into=python)
        left = [path.name for path in (folder / "env").rglob("*inetoscope*")]
        require(not left, f"uninstalling leaves {left}")
        return output


def check_refused_build(way: Installation, python: Path) -> str:
    """Require that the sources cannot be installed without a compiler, and that the remedy is named."""
    try:
        install(way, python)
    except DistError as error:
        require("Without them, install a wheel" in str(error), f"pip failed for another reason:\n{error}")
        return "refused"
    raise DistError("pip installed it without a compiler")


def install(way: Installation, python: Path) -> None:
    """Install a file and its requirements. pip reuses wheels it built from a file that has changed since; hence two
    steps, and only the second may use its cache."""
    path = os.environ["PATH"] if way.has_compiler else str(python.parent)
    pip("install", "--no-deps", "--no-cache-dir", way.file, into=python, environment={"PATH": path})
    pip("install", *run(python, "-c", NEEDS).splitlines(), into=python)
    pip("check", into=python)


def try_own_tests(python: Path, sdist: Path, folder: Path) -> str:
    """Run tests of the unpacked sdist against what was installed."""
    with tarfile.open(sdist) as files:
        files.extractall(folder, filter="data")
    pip("install", "--quiet", *TOOLS_OF_TESTS, into=python)
    source = folder / sdist.name.removesuffix(".tar.gz")
    return run(python, "-m", "pytest", "--quiet", "-p", "no:cacheprovider", *OWN_TESTS, cwd=source)


# -- run ------------------------------------------------------------------------------------------------------


def pip(*arguments: object, into: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Run this environment's pip, which is new, for itself or for the Python ``into``."""
    where = [] if into is None else ["--python", into]
    return run(sys.executable, "-m", "pip", *where, *arguments, environment=environment)


def run(*command: object, cwd: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Return the output of a command, run without our own environment variables. Raise `DistError` if it fails."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("KINETOSCOPE_", "PYTHON"))}
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env={**inherited, **(environment or {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    require(done.returncode == 0, f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def require(is_true: bool, what: str) -> None:
    if not is_true:
        raise DistError(what)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]).resolve())
    except DistError as error:
        sys.exit(str(error))
