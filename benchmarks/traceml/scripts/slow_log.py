"""A loop that waits for its log after each step, for longer than the step takes. Fix: no wait."""

import time

import torch
from torch.utils.data import DataLoader, TensorDataset
from watching import BATCH_SIZE, NUM_BATCHES, NUM_FEATURES, end_step, make_model, read_arguments, train_step, watched


def write_log() -> None:
    time.sleep(0.02)  # FAULT


def main() -> None:
    arguments = read_arguments()
    loader = DataLoader(TensorDataset(torch.randn(NUM_BATCHES * BATCH_SIZE, NUM_FEATURES)), batch_size=BATCH_SIZE)
    model = make_model(512, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with watched(arguments) as batches:
        for (inputs,) in batches(loader):
            train_step(model, optimizer, model(inputs).square().mean())
            end_step()
            if not arguments.fixed:
                write_log()  # FAULT


if __name__ == "__main__":
    main()
