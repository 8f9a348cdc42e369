"""A dataset with slow samples, as one that decodes a file each time. Fix: prepared once."""

import time

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from watching import BATCH_SIZE, NUM_BATCHES, NUM_FEATURES, make_model, read_arguments, train_step, watched


class Samples(Dataset[Tensor]):
    def __init__(self, is_prepared: bool) -> None:
        self.is_prepared = is_prepared

    def __len__(self) -> int:
        return NUM_BATCHES * BATCH_SIZE

    def __getitem__(self, index: int) -> Tensor:
        if not self.is_prepared:
            time.sleep(0.001)  # FAULT
        return torch.full((NUM_FEATURES,), index / len(self))


def main() -> None:
    arguments = read_arguments()
    loader = DataLoader(Samples(is_prepared=arguments.fixed), batch_size=BATCH_SIZE)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with watched(arguments) as batches:
        for inputs in batches(loader):
            train_step(model, optimizer, model(inputs).square().mean())


if __name__ == "__main__":
    main()
