"""The lock file of the development environment: ``make lock`` writes it, and ``make check`` checks it offline.

`requirements.lock` has one version of each package that the groups of `.venv` need. `pip-compile` resolves them
together for the oldest Python. It names no index and no hash, and leaves out torch: its builds differ by machine.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[3]
LOCK = ROOT / "requirements.lock"
HEADER = (
    "# Versions of the development environment, for the oldest Python. Written by `make lock`; torch is left out.\n"
)
ELSEWHERE = ("composer", "hta", "test-torch")
"""Groups of environments with versions of their own, and the group for any version of torch."""
LEFT_OUT = re.compile(r"torch|triton|nvidia-(?!ml-py).+|cuda-.+|kinetoscope")


def list_requirements() -> list[Requirement]:
    """Return what the package, its extras and the groups of `.venv` require, without torch."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    groups = project["dependency-groups"]
    extras = project["project"]["optional-dependencies"]
    lines = [*project["project"]["dependencies"], *(line for lines in extras.values() for line in lines)]
    lines += [line for name in groups if name not in ELSEWHERE for line in _expand(name, groups)]
    found = {line: Requirement(line) for line in lines}
    return [each for each in found.values() if not LEFT_OUT.fullmatch(canonicalize_name(each.name))]


def _expand(name: str, groups: dict[str, list]) -> Iterator[str]:
    for entry in groups[name]:
        if isinstance(entry, str):
            yield entry
        else:
            yield from _expand(entry["include-group"], groups)


def read_pins(text: str) -> dict[str, Version]:
    """Return the version of each package in a lock file."""
    pins = re.findall(r"^([\w.-]+)(?:\[.*\])?==(\S+)", text, re.M)
    return {canonicalize_name(name): Version(version) for name, version in pins}


def list_faults(requirements: Iterable[Requirement], text: str) -> list[str]:
    """Return a sentence for each requirement without a pin that satisfies it, and for each forbidden line."""
    pins = read_pins(text)
    faults = []
    for each in requirements:
        if each.marker is not None and not each.marker.evaluate({"python_version": "3.11", "extra": ""}):
            continue
        pin = pins.get(canonicalize_name(each.name))
        if pin is None:
            faults.append(f"{each.name} has no version.")
        elif not each.specifier.contains(pin, prereleases=True):
            faults.append(f"{each.name} {pin} does not satisfy {each.specifier}.")
    if re.search(r"https?:|file:|--(extra-)?index|--find-links|--hash", text):
        faults.append("It names an index, a link or a hash.")
    return faults + [f"{name} is pinned." for name in pins if LEFT_OUT.fullmatch(name)]


def write() -> None:
    """Resolve the requirements and write the lock file."""
    torch = next(_expand("torch", tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]))
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder) / "requirements.in", Path(folder) / "requirements.txt"
        source.write_text("\n".join([torch, *map(str, list_requirements())]) + "\n", encoding="utf-8")
        without = ("header", "annotate", "emit-index-url", "emit-find-links", "emit-trusted-host", "emit-options")
        command = [sys.executable, "-m", "piptools", "compile", "--quiet", "--strip-extras", "--allow-unsafe"]
        command += [*(f"--no-{each}" for each in without), "--output-file", str(output), str(source)]
        if LOCK.exists():  # versions stay where they satisfy pyproject.toml
            output.write_text(LOCK.read_text(encoding="utf-8"), encoding="utf-8")
        subprocess.run(command, check=True)
        pins = [line for line in output.read_text(encoding="utf-8").splitlines() if re.match(r"[\w.-]+==", line)]
    kept = [line for line in pins if not LEFT_OUT.fullmatch(canonicalize_name(line.partition("==")[0]))]
    LOCK.write_text(HEADER + "\n".join(kept) + "\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Write the lock file, or print its faults and return 1 if there are some."""
    if arguments == ["write"]:
        write()
        return 0
    faults = list_faults(list_requirements(), LOCK.read_text(encoding="utf-8"))
    for fault in faults:
        print(f"requirements.lock: {fault} Run `make lock`.")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
