"""A loop that evaluates after every fifth step, on samples that take long to read. Fix: no evaluation."""

import time

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, TensorDataset
from watching import (
    BATCH_SIZE,
    NUM_BATCHES,
    NUM_FEATURES,
    end_step,
    evaluation,
    make_model,
    read_arguments,
    train_step,
    watched,
)


class HeldOut(Dataset[Tensor]):
    def __len__(self) -> int:
        return 2 * BATCH_SIZE

    def __getitem__(self, index: int) -> Tensor:
        time.sleep(0.001)  # FAULT
        return torch.full((NUM_FEATURES,), index / len(self))


def evaluate(model: torch.nn.Module, loader: "DataLoader[Tensor]") -> float:
    with torch.no_grad():
        return sum(model(inputs).square().mean().item() for inputs in loader)  # FAULT


def main() -> None:
    arguments = read_arguments()
    loader = DataLoader(TensorDataset(torch.randn(NUM_BATCHES * BATCH_SIZE, NUM_FEATURES)), batch_size=BATCH_SIZE)
    held_out = DataLoader(HeldOut(), batch_size=BATCH_SIZE)
    model = make_model(512, 3)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with watched(arguments) as batches:
        for step, (inputs,) in enumerate(batches(loader)):
            train_step(model, optimizer, model(inputs).square().mean())
            end_step()
            if step % 5 == 4 and not arguments.fixed:
                with evaluation():
                    evaluate(model, held_out)  # FAULT


if __name__ == "__main__":
    main()
