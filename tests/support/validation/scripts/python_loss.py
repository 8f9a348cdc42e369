"""A loss with weights computed in a Python loop over elements. Fix: operators on the whole tensor."""

import math

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset
from watching import BATCH_SIZE, NUM_BATCHES, NUM_FEATURES, make_model, read_arguments, train_step, watched

NUM_MARKS = 8192


def weigh_in_python(marks: Tensor) -> Tensor:
    weights = []
    for row in marks.tolist():  # FAULT
        total = 0.0
        for mark in row:  # FAULT
            total += math.log1p(math.exp(-mark * mark))  # FAULT
        weights.append(total)  # FAULT
    return torch.tensor(weights)


def weigh_at_once(marks: Tensor) -> Tensor:
    return marks.square().neg().exp().log1p().sum(dim=1)


def main() -> None:
    arguments = read_arguments()
    weigh = weigh_at_once if arguments.fixed else weigh_in_python
    num_samples = NUM_BATCHES * BATCH_SIZE
    samples, marks = torch.randn(num_samples, NUM_FEATURES), torch.randn(num_samples, NUM_MARKS)
    loader = DataLoader(TensorDataset(samples, marks), batch_size=BATCH_SIZE)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with watched(arguments) as batches:
        for inputs, marked in batches(loader):
            weights = weigh(marked)
            loss = (weights * model(inputs).squeeze(1).square()).mean()
            train_step(model, optimizer, loss)


if __name__ == "__main__":
    main()
