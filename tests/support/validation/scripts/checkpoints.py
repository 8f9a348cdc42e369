"""A checkpoint of a large table in every fifth step. Fix: one, after the last step."""

import itertools
import time
from pathlib import Path
from statistics import median

import torch
from torch.utils.data import DataLoader, TensorDataset
from watching import BATCH_SIZE, NUM_BATCHES, NUM_FEATURES, make_model, read_arguments, train_step, watched

EVERY = 5
NUM_ROWS = 6_000_000
NUM_TRIED = 5
SAVE_NS = 150_000_000
"""Duration of a save, on a fast disk as on a slow one."""


def make_table(path: Path) -> torch.Tensor:
    """Return a table that takes that long to save."""
    tried = torch.zeros(NUM_ROWS)
    times_ns = []
    for _ in range(NUM_TRIED):
        begin_ns = time.monotonic_ns()
        torch.save(tried, path)
        times_ns.append(time.monotonic_ns() - begin_ns)
    return torch.zeros(NUM_ROWS * SAVE_NS // int(median(times_ns)))


def main() -> None:
    arguments = read_arguments()
    path = arguments.out.with_name(f"{arguments.out.name}.pt")
    loader = DataLoader(TensorDataset(torch.randn(NUM_BATCHES * BATCH_SIZE, NUM_FEATURES)), batch_size=BATCH_SIZE)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    numbers = itertools.count()
    table = make_table(path)
    with watched(arguments) as batches:
        for (inputs,) in batches(loader):
            train_step(model, optimizer, model(inputs).square().mean())
            if next(numbers) % EVERY == EVERY - 1 and not arguments.fixed:
                torch.save(table, path)  # FAULT
    torch.save(table, path)
    path.unlink()


if __name__ == "__main__":
    main()
