"""Code shared by the scripts of this folder: their arguments, a small model, and a loop with timed steps."""

import argparse
import contextlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

NUM_STEPS = 40
"""Number of recorded steps."""

NUM_BEFORE = 2
"""Number of steps before those: one that is skipped, and one in which torch warms up."""

NUM_BATCHES = NUM_STEPS + NUM_BEFORE
BATCH_SIZE = 32
NUM_FEATURES = 256

Batches = Callable[[Iterable[Any]], Iterator[Any]]


def argument_parser() -> argparse.ArgumentParser:
    """``out``, the run's folder; whether the training is ``fixed`` and ``unprofiled``; and how many ``steps`` to
    record."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--unprofiled", action="store_true")
    parser.add_argument("--steps", type=int, default=NUM_STEPS)
    return parser


def read_arguments() -> argparse.Namespace:
    """Parse the arguments of a script without options of its own."""
    return argument_parser().parse_args()


def make_model(width: int = 1024, num_layers: int = 4) -> nn.Sequential:
    """Layers of one width. With the defaults, a step takes about 15 ms on one core."""
    widths = [NUM_FEATURES, *[width] * num_layers]
    layers = [layer for one, other in pairwise(widths) for layer in (nn.Linear(one, other), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(width, 1))


def train_step(model: nn.Module, optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """Take an optimizer step for a loss."""
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


@contextlib.contextmanager
def watched(
    arguments: argparse.Namespace, all_batches: Callable[[Batches], Iterable[Any]] | None = None
) -> Iterator[Batches]:
    """Yield what to iterate over batches with: recorded, unless ``unprofiled``, and timed. The moments at which the
    loop requested each batch are written next to the run, in ns, as ``{out}-rank0.json``."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    moments_ns: list[int] = []
    with _recorded(arguments) as recorded:
        last = arguments.steps + NUM_BEFORE
        yield lambda batches: _timed(
            islice(all_batches(recorded) if all_batches else recorded(batches), last), moments_ns
        )
    path = arguments.out.with_name(f"{arguments.out.name}-rank{os.environ.get('RANK', 0)}.json")
    path.write_text(json.dumps(moments_ns))


def watched_epochs(arguments: argparse.Namespace, loaders: Iterable[Iterable[Any]]) -> Iterator[Any]:
    """The batches of many epochs, each of the next of ``loaders``: recorded and timed as those of `watched`."""
    with watched(arguments, lambda recorded: chain.from_iterable(map(recorded, loaders))) as batches:
        yield from batches(())


@contextlib.contextmanager
def _recorded(arguments: argparse.Namespace) -> Iterator[Batches]:
    if arguments.unprofiled:
        yield iter
        return
    import kinetoscope

    schedule = kinetoscope.cyclic_schedule(skip_first=1, warmup=1, active=arguments.steps, per="run")
    with kinetoscope.profile(arguments.out, schedule=schedule, diagnose=True, quiet=True) as profiler:
        yield profiler.batches


def _timed(batches: Iterable[Any], moments_ns: list[int]) -> Iterator[Any]:
    moments_ns.append(time.monotonic_ns())
    for batch in batches:
        yield batch
        moments_ns.append(time.monotonic_ns())
