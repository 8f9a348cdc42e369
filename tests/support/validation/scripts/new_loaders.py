"""A new loader for each epoch of ten batches. Fix: one loader with persistent workers."""

import time
from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from watching import BATCH_SIZE, NUM_FEATURES, argument_parser, make_model, train_step, watched_epochs

PER_EPOCH = 8


class Samples(Dataset[Tensor]):
    def __len__(self) -> int:
        return PER_EPOCH * BATCH_SIZE

    def __getitem__(self, index: int) -> Tensor:
        return torch.full((NUM_FEATURES,), index / len(self))


def prepare(worker: int) -> None:
    """Work of a worker before its first batch, such as opening files."""
    time.sleep(0.15)


def loaders(is_fixed: bool) -> Iterator[DataLoader[Tensor]]:
    kept = make_loader(persistent_workers=True)
    while True:
        yield kept if is_fixed else make_loader()


def make_loader(**options: bool) -> DataLoader[Tensor]:
    return DataLoader(Samples(), batch_size=BATCH_SIZE, num_workers=1, worker_init_fn=prepare, **options)


def main() -> None:
    arguments = argument_parser().parse_args()
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    for inputs in watched_epochs(arguments, loaders(arguments.fixed)):
        train_step(model, optimizer, model(inputs).square().mean())


if __name__ == "__main__":
    main()
