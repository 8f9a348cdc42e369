"""Verdicts of `kinetoscope diff` on pairs of runs with a known difference, while other processes keep the CPUs busy.

    python -m benchmarks.analysis.compare_pairs --same 100 --longer 20 --tutorial 20 --busy 2

A pair is two recordings of a small training loop, one after the other: of the same program (A/A), of one in which each
step computes 25 % more, and of the loop of the data-loading tutorial before and after its fix. Each run is a process of
its own, forked from one that has imported torch. Only steps are recorded, which takes little time compared with the
loop. Runs that ``--keep`` has are not recorded again.
"""

import argparse
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch

import kinetoscope

_NUM_STEPS, _TUTORIAL_STEPS = 260, 36
# Units that take 8 ms together: a run lasts 2 s. Other processes slow some shorter runs down from begin to end.
_UNITS, _MORE_UNITS = 16, 20
_BATCH, _WIDTH = 32, 256
_BUSY_LOOP = "while True: pass"


class Run(NamedTuple):
    """A recording: its number of steps, the units that a step computes, and the source of its batches."""

    num_steps: int
    num_units: int = _UNITS
    num_numbers: int = 500
    reads_text: bool = False


class Pair(NamedTuple):
    """Two runs, and the verdicts on the step that are right."""

    before: Run
    after: Run
    right: frozenset[str]


_NO_CHANGE = frozenset(["same", "unsure"])
_TUTORIAL = Run(_TUTORIAL_STEPS, num_units=1, num_numbers=4000, reads_text=True)
PAIRS = {
    "same": Pair(Run(_NUM_STEPS), Run(_NUM_STEPS), _NO_CHANGE),
    "longer": Pair(Run(_NUM_STEPS), Run(_NUM_STEPS, _MORE_UNITS), frozenset(["slower"])),
    "tutorial": Pair(_TUTORIAL, _TUTORIAL._replace(reads_text=False), frozenset(["faster"])),
}


def main() -> int:
    """Record and compare the pairs, and print the verdicts of each kind."""
    options = _parse_options()
    torch.set_num_threads(1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the busy processes end with this one
    with tempfile.TemporaryDirectory() as temporary, _busy_processes(options.busy):
        folder = Path(options.keep or temporary)
        for kind, number in _enumerate_pairs(options):
            _record_pair(PAIRS[kind], folder / f"{kind}-{number}")
        verdicts = {kind: Counter[str]() for kind in PAIRS}
        for kind, number in _enumerate_pairs(options):
            verdicts[kind][_compare_pair(folder / f"{kind}-{number}")] += 1
        for kind, counts in verdicts.items():
            num_right = sum(counts[verdict] for verdict in PAIRS[kind].right)
            print(f"{kind}: {num_right} of {counts.total()} right; {json.dumps(counts)}", flush=True)
    return 0


def _enumerate_pairs(options: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """Yield the pairs by kind and number, kinds in turns, so that a run that is stopped has some of each."""
    counts = {kind: getattr(options, kind) for kind in PAIRS}
    for number in range(max(counts.values())):
        yield from ((kind, number) for kind, count in counts.items() if number < count)


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.analysis.compare_pairs")
    for kind in PAIRS:
        parser.add_argument(f"--{kind}", type=int, default=0, metavar="N", help=f"number of pairs: {kind}")
    parser.add_argument("--busy", type=int, default=2, metavar="N", help="processes that keep a CPU busy (default: 2)")
    parser.add_argument("--keep", metavar="FOLDER", help="keep the runs in this folder")
    return parser.parse_args()


@contextmanager
def _busy_processes(num_processes: int) -> Iterator[None]:
    command = [sys.executable, "-c", _BUSY_LOOP]
    processes = [subprocess.Popen(command) for _ in range(num_processes)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _record_pair(pair: Pair, folder: Path) -> None:
    for name, run in (("before", pair.before), ("after", pair.after)):
        if (folder / name).exists():
            continue
        process = multiprocessing.get_context("fork").Process(target=_record_run, args=(run, folder / name))
        process.start()
        process.join()
        if process.exitcode:
            raise SystemExit(f"The run in {folder / name} failed.")


def _compare_pair(folder: Path) -> str:
    step = kinetoscope.compare(folder / "before", folder / "after", cache=False).step
    return step.verdict if step is not None else "no step"


def _record_run(run: Run, folder: Path) -> None:
    torch.manual_seed(0)
    layers = torch.nn.Linear(run.num_numbers, _WIDTH), torch.nn.ReLU(), torch.nn.Linear(_WIDTH, 4)
    model = torch.nn.Sequential(*layers)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    with kinetoscope.profile(folder, torch=False, system=False, quiet=True) as profiler:
        for numbers in profiler.batches(_make_batches(run)):
            for _ in range(run.num_units):
                loss = torch.nn.functional.cross_entropy(model(numbers), torch.zeros(len(numbers), dtype=torch.long))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()


def _make_batches(run: Run) -> Iterable[torch.Tensor]:
    row = ",".join(str(place * 17 % 97 / 97) for place in range(run.num_numbers))
    batch = torch.rand(_BATCH, run.num_numbers)
    for _ in range(run.num_steps):
        if run.reads_text:
            batch = torch.tensor([[float(text) for text in row.split(",")] for _ in range(_BATCH)])
        yield batch


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
