"""A compiled model that gets batches of ever new shapes, and is recompiled for each. Fix: padding to one shape."""

import torch
from torch import Tensor, nn
from watching import NUM_BATCHES, NUM_FEATURES, make_model, read_arguments, train_step, watched

MAX_LENGTH = 32


def score(model: nn.Module, inputs: Tensor) -> Tensor:  # FAULT
    return model(inputs).square().mean()


def main() -> None:
    arguments = read_arguments()
    compiled = torch.compile(score, backend="eager", dynamic=False)
    shorter_and_shorter = [torch.randn(MAX_LENGTH - step // 6, NUM_FEATURES) for step in range(NUM_BATCHES)]
    model = make_model(width=512, num_layers=16)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with watched(arguments) as batches:
        for inputs in batches(shorter_and_shorter):
            if arguments.fixed:
                inputs = nn.functional.pad(inputs, (0, 0, 0, MAX_LENGTH - len(inputs)))
            loss = compiled(model, inputs)  # FAULT
            train_step(model, optimizer, loss)


if __name__ == "__main__":
    main()
