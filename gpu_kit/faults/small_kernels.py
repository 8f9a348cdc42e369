"""An optimizer that updates parameter by parameter, with some kernels for each. Fix: its fused form."""

from collections.abc import Iterator

import torch
from layers import make_mlp
from program import Options, main


def train(options: Options) -> Iterator[None]:
    width, num_layers = options.pick(gpu=(256, 64), cpu=(32, 64))
    model = make_mlp(width, num_layers, options.device)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, foreach=False, fused=options.fixed)
    inputs = torch.randn(64, width, device=options.device)
    while True:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()  # FAULT
        yield


if __name__ == "__main__":
    main(train)
