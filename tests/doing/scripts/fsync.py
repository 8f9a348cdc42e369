"""A log that is forced to the disk after every line of each step. Mended: written without that."""

import os

import torch
from torch.utils.data import DataLoader, TensorDataset
from watching import BATCH_SIZE, NUM_BATCHES, NUM_FEATURES, make_model, read_arguments, train_step, watched

NUM_LINES = 60
LINE = b"x" * 65_536


def main() -> None:
    arguments = read_arguments()
    path = arguments.out.with_name(f"{arguments.out.name}.log")
    loader = DataLoader(TensorDataset(torch.randn(NUM_BATCHES * BATCH_SIZE, NUM_FEATURES)), batch_size=BATCH_SIZE)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    log = os.open(path, os.O_WRONLY | os.O_CREAT)
    with watched(arguments) as batches:
        for (inputs,) in batches(loader):
            train_step(model, optimizer, model(inputs).square().mean())
            for _ in range(0 if arguments.mended else NUM_LINES):
                os.pwrite(log, LINE, 0)  # FAULT
                os.fsync(log)  # FAULT
    os.close(log)
    path.unlink()


if __name__ == "__main__":
    main()
