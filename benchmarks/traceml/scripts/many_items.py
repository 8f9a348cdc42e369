"""A loop that reads 512 losses one by one with `.item()`. Fix: all at once."""

import torch
from torch.utils.data import DataLoader
from watching import NUM_BATCHES, NUM_FEATURES, make_model, read_arguments, train_step, watched

BATCH_SIZE = 512


def main() -> None:
    arguments = read_arguments()
    loader = DataLoader([torch.randn(BATCH_SIZE, NUM_FEATURES)] * NUM_BATCHES, batch_size=None)
    model = make_model(64, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    worst = 0.0
    with watched(arguments) as batches:
        for inputs in batches(loader):
            losses = model(inputs).square().squeeze(1)
            if arguments.fixed:
                worst = max(worst, *losses.detach().sqrt().tolist())
            else:
                for loss in losses:  # FAULT
                    worst = max(worst, loss.detach().sqrt().item())  # FAULT
            train_step(model, optimizer, losses.mean())


if __name__ == "__main__":
    main()
