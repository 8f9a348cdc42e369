"""More compute threads besides the loop than there are cores. Fix: none of them."""

import os
import threading

import torch
from torch.utils.data import DataLoader, TensorDataset
from watching import BATCH_SIZE, NUM_BATCHES, NUM_FEATURES, make_model, read_arguments, train_step, watched


def compute(is_over: threading.Event) -> None:
    """Products without the GIL."""
    factor = torch.randn(700, 700)
    while not is_over.is_set():
        torch.mm(factor, factor)


def main() -> None:
    arguments = read_arguments()
    loader = DataLoader(TensorDataset(torch.randn(NUM_BATCHES * BATCH_SIZE, NUM_FEATURES)), batch_size=BATCH_SIZE)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    is_over = threading.Event()
    number = 0 if arguments.fixed else 4 * (os.cpu_count() or 1)
    others = [threading.Thread(target=compute, args=(is_over,)) for _ in range(number)]
    with watched(arguments) as batches:
        for other in others:
            other.start()
        for (inputs,) in batches(loader):
            train_step(model, optimizer, model(inputs).square().mean())
        is_over.set()
    for other in others:
        other.join()


if __name__ == "__main__":
    main()
