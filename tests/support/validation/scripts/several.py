"""Short runs of several scripts, one after the other in one process: folder, number of steps, names of scripts."""

import runpy
import sys
from pathlib import Path


def main(folder: str, steps: str, *names: str) -> None:
    for name in names:
        sys.argv = [name, f"{folder}/{name}", "--steps", steps]
        runpy.run_path(str(Path(__file__).with_name(f"{name}.py")), run_name="__main__")


if __name__ == "__main__":
    main(*sys.argv[1:])
