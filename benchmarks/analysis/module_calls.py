"""Modules that `kinetoscope summary` enters, and calls between them.

Run it with ``python -m benchmarks.analysis.module_calls RUN``.
"""

import argparse
import contextlib
import io
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import kinetoscope
from kinetoscope.cli import main

ROOT = str(Path(kinetoscope.__file__).parent) + "/"


def count_calls(arguments: list[str]) -> tuple[Counter[str], Counter[tuple[str, str]]]:
    """Return how often each module is entered from another one, and how often from which; imports do not count."""
    entered, between = Counter[str](), Counter[tuple[str, str]]()

    def profile(frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or frame.f_code.co_name == "<module>" or frame.f_back is None:
            return
        callee, caller = _find_module(frame), _find_module(frame.f_back)
        if callee and callee != caller:
            entered[callee] += 1
            between[caller or "(others)", callee] += 1

    sys.setprofile(profile)
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            main(arguments)
    finally:
        sys.setprofile(None)
    return entered, between


def _find_module(frame: FrameType) -> str:
    file = frame.f_code.co_filename
    return file.removeprefix(ROOT) if file.startswith(ROOT) else ""


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", help="folder of the run to summarize")
    parser.add_argument("--under", default="analysis/", help="count modules in this folder (default: %(default)s)")
    parser.add_argument("--most", type=int, default=10, help="print so many modules (default: %(default)s)")
    options = parser.parse_args()
    entered, between = count_calls(["summary", options.run, "--json"])
    chosen = {name: num for name, num in entered.items() if name.startswith(options.under)}
    pairs = {pair: num for pair, num in between.items() if all(name.startswith(options.under) for name in pair)}
    print(f"{len(chosen)} modules of {options.under} entered, {sum(chosen.values()):,} times; ", end="")
    print(f"{len(pairs)} pairs of them call each other, {sum(pairs.values()):,} times")
    for name, num in sorted(chosen.items(), key=lambda one: -one[1])[: options.most]:
        print(f"{num:>8,}  {name}")
