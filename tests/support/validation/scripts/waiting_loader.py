"""A loader that waits for its storage, while others keep its cores busy. Fix: four workers wait in parallel."""

import multiprocessing
import os
import time

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from watching import BATCH_SIZE, NUM_BATCHES, NUM_FEATURES, make_model, read_arguments, train_step, watched


class Samples(Dataset[Tensor]):
    def __len__(self) -> int:
        return NUM_BATCHES * BATCH_SIZE

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(0.0015)  # FAULT
        return torch.full((NUM_FEATURES,), index / len(self))


def keep_busy() -> None:
    os.nice(19)
    training = multiprocessing.parent_process()
    while training is not None and training.is_alive():  # it may be killed
        sum(range(100_000))


def main() -> None:
    arguments = read_arguments()
    cores = sorted(os.sched_getaffinity(0))[-2:]
    os.sched_setaffinity(0, cores)  # so that two others are enough, however many cores there are
    others = [multiprocessing.Process(target=keep_busy, daemon=True) for _ in cores]
    for other in others:
        other.start()
    loader = DataLoader(Samples(), batch_size=BATCH_SIZE, num_workers=4 if arguments.fixed else 0)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with watched(arguments) as batches:
        for inputs in batches(loader):
            train_step(model, optimizer, model(inputs).square().mean())
    for other in others:
        other.kill()


if __name__ == "__main__":
    main()
