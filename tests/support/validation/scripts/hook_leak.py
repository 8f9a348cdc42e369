"""A forward hook that keeps a layer's output in a list referenced only by the hook. Fix: numbers."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from watching import BATCH_SIZE, NUM_BATCHES, NUM_FEATURES, make_model, read_arguments, train_step, watched


def make_hook(keep: Callable[[Tensor], object]) -> Callable[[nn.Module, object, Tensor], None]:
    activations = []

    def hook(module: nn.Module, inputs: object, output: Tensor) -> None:
        activations.append(keep(output))  # FAULT

    return hook


def main() -> None:
    arguments = read_arguments()
    loader = DataLoader(TensorDataset(torch.randn(NUM_BATCHES * BATCH_SIZE, NUM_FEATURES)), batch_size=BATCH_SIZE)
    model = make_model()
    keep = (lambda output: output.mean().item()) if arguments.fixed else Tensor.detach
    model[4].register_forward_hook(make_hook(keep))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with watched(arguments) as batches:
        for (inputs,) in batches(loader):
            train_step(model, optimizer, model(inputs).square().mean())


if __name__ == "__main__":
    main()
