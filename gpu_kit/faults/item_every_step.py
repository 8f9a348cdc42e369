"""The loss of each sample is read with `.item()` in every step. Fix: keep the losses on the device."""

from collections.abc import Iterator

import torch
from layers import make_mlp
from program import Options, main

NUM_READ = 512


def train(options: Options) -> Iterator[None]:
    model = make_mlp(4096, 8, options.device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    inputs = torch.randn(2048, 4096, device=options.device)
    hardest = [0.0] * NUM_READ
    while True:
        optimizer.zero_grad()
        losses = model(inputs).square().mean(1)
        losses.mean().backward()
        optimizer.step()
        if not options.fixed:
            hardest = [max(old, loss.item()) for old, loss in zip(hardest, losses[:NUM_READ], strict=True)]  # FAULT
        yield


if __name__ == "__main__":
    main(train)
