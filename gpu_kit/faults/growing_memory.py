"""A list of losses that keep the graphs of their steps alive. Fix: detached losses."""

from collections.abc import Iterator

import torch
from layers import make_mlp
from program import Options, main


def train(options: Options) -> Iterator[None]:
    width, batch_size = options.pick(gpu=(2048, 1024), cpu=(512, 32))
    model = make_mlp(width, 6, options.device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    inputs = torch.randn(batch_size, width, device=options.device)
    losses = []
    while True:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        held_out = model(inputs).square().mean()
        losses.append(held_out.detach() if options.fixed else held_out)  # FAULT
        yield


if __name__ == "__main__":
    main(train)
