"""A loss that is summed element by element, with several operators for each. Fix: on the whole tensor."""

import torch
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset
from watching import BATCH_SIZE, NUM_BATCHES, NUM_FEATURES, make_model, read_arguments, train_step, watched


def loss_by_elements(outputs: Tensor) -> Tensor:
    total = outputs.new_zeros(())
    for output in outputs:  # FAULT
        for target in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8):  # FAULT
            total = total + (output - target).square().sum()  # FAULT
    return total / len(outputs)


def loss_at_once(outputs: Tensor) -> Tensor:
    targets = outputs.new_tensor((0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8))
    return (outputs - targets).square().sum() / len(outputs)


def main() -> None:
    arguments = read_arguments()
    loss_of = loss_at_once if arguments.fixed else loss_by_elements
    loader = DataLoader(TensorDataset(torch.randn(NUM_BATCHES * BATCH_SIZE, NUM_FEATURES)), batch_size=BATCH_SIZE)
    model = make_model()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with watched(arguments) as batches:
        for (inputs,) in batches(loader):
            train_step(model, optimizer, loss_of(model(inputs)))


if __name__ == "__main__":
    main()
