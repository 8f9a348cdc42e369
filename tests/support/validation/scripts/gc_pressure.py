"""Records of many small objects in each step, which the garbage collector scans repeatedly. Fix: gc.freeze."""

import gc

import torch
from torch.utils.data import DataLoader, TensorDataset
from watching import BATCH_SIZE, NUM_BATCHES, NUM_FEATURES, make_model, read_arguments, train_step, watched

NUM_RECORDS = 15_000


def make_records(step: int) -> list[dict[str, list[int]]]:
    return [{"at": [step, number]} for number in range(NUM_RECORDS)]  # FAULT


def main() -> None:
    arguments = read_arguments()
    loader = DataLoader(TensorDataset(torch.randn(NUM_BATCHES * BATCH_SIZE, NUM_FEATURES)), batch_size=BATCH_SIZE)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    if arguments.fixed:
        gc.freeze()
        gc.disable()
    with watched(arguments) as batches:
        for step, (inputs,) in enumerate(batches(loader)):
            records = make_records(step)
            train_step(model, optimizer, model(inputs).square().mean() * len(records))


if __name__ == "__main__":
    main()
