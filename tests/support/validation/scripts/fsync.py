"""A log that is forced to the disk after every line of each step. Fix: without fsync."""

import os
import time
from statistics import quantiles

import torch
from torch.utils.data import DataLoader, TensorDataset
from watching import BATCH_SIZE, NUM_BATCHES, NUM_FEATURES, make_model, read_arguments, train_step, watched

LINE = b"x" * 100
STEP_NS = 30_000_000
"""Duration of the lines of a step, on a fast disk as on a slow one."""
NUM_TRIED = 60


def num_lines(log: int) -> int:
    """Number of lines that a step writes. Most retries may wait for a CPU, on a busy machine."""
    times_ns = []
    for _ in range(NUM_TRIED):
        begin_ns = time.monotonic_ns()
        os.pwrite(log, LINE, 0)
        os.fsync(log)
        times_ns.append(time.monotonic_ns() - begin_ns)
    quick_ns, *_ = quantiles(times_ns, n=4)
    return 1 + int(STEP_NS / quick_ns)


def main() -> None:
    arguments = read_arguments()
    path = arguments.out.with_name(f"{arguments.out.name}.log")
    loader = DataLoader(TensorDataset(torch.randn(NUM_BATCHES * BATCH_SIZE, NUM_FEATURES)), batch_size=BATCH_SIZE)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    log = os.open(path, os.O_WRONLY | os.O_CREAT)
    lines = num_lines(log)
    with watched(arguments) as batches:
        for (inputs,) in batches(loader):
            train_step(model, optimizer, model(inputs).square().mean())
            for _ in range(lines):
                os.pwrite(log, LINE, 0)
                if not arguments.fixed:
                    os.fsync(log)  # FAULT
    os.close(log)
    path.unlink()


if __name__ == "__main__":
    main()
