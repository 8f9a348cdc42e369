"""One worker, which takes longer for a batch than the loop takes for a step. Fix: two workers."""

import time

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from watching import NUM_BATCHES, NUM_FEATURES, make_model, read_arguments, train_step, watched

BATCH_SIZE = 128
"""A large batch for a small model: while a loop waits, caches get cold, and a large model then computes more slowly."""


class Samples(Dataset[Tensor]):
    def __len__(self) -> int:
        return NUM_BATCHES * BATCH_SIZE

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(0.00035)  # FAULT
        return torch.full((NUM_FEATURES,), index / len(self))


def main() -> None:
    arguments = read_arguments()
    num_workers = 2 if arguments.fixed else 1
    loader = DataLoader(Samples(), batch_size=BATCH_SIZE, num_workers=num_workers)  # FAULT
    model = make_model(num_layers=3)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with watched(arguments) as batches:
        for inputs in batches(loader):
            train_step(model, optimizer, model(inputs).square().mean())


if __name__ == "__main__":
    main()
