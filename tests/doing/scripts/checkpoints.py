"""A checkpoint of a large table in every fifth step. Mended: saved by a thread of its own, from a copy."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import torch
from torch.utils.data import DataLoader, TensorDataset
from watching import BATCH_SIZE, NUM_BATCHES, NUM_FEATURES, make_model, read_arguments, train_step, watched

EVERY = 5
TABLE = torch.zeros(6_000_000)


def main() -> None:
    arguments = read_arguments()
    path = arguments.out.with_name(f"{arguments.out.name}.pt")
    loader = DataLoader(TensorDataset(torch.randn(NUM_BATCHES * BATCH_SIZE, NUM_FEATURES)), batch_size=BATCH_SIZE)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    numbers = itertools.count()
    with ThreadPoolExecutor(1) as saving, watched(arguments) as batches:
        for (inputs,) in batches(loader):
            train_step(model, optimizer, model(inputs).square().mean())
            if next(numbers) % EVERY == EVERY - 1:
                if arguments.mended:
                    saving.submit(torch.save, TABLE, path)
                else:
                    torch.save(TABLE, path)  # FAULT
    path.unlink()


if __name__ == "__main__":
    main()
