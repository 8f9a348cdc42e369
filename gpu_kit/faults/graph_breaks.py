"""A compiled model in which each layer looks at a value, which breaks the graph. Fix: the same without looking."""

from collections.abc import Iterator

import torch
from program import Options, main
from torch import nn


class Clamped(nn.Module):
    """A layer whose outputs are limited where they are large."""

    def __init__(self, width: int, breaks: bool) -> None:
        super().__init__()
        self.linear, self.breaks = nn.Linear(width, width), breaks

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.nn.functional.gelu(self.linear(x))
        if self.breaks:
            return x.clamp(-8, 8) if x.abs().max() > 8 else x  # FAULT
        return x.clamp(-8, 8)


def train(options: Options) -> Iterator[None]:
    layers = [Clamped(1024, not options.fixed) for _ in range(8)]
    layers_in_order = nn.Sequential(*layers).to(options.device)
    model = torch.compile(layers_in_order, backend=backend_for(options.device))
    optimizer = torch.optim.SGD(layers_in_order.parameters(), 1e-4)
    inputs = torch.randn(1024, 1024, device=options.device)
    while True:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        yield


def backend_for(device: str) -> str:
    """Return "inductor" where it can compile for the device, else "aot_eager", which needs no compiler."""
    try:
        torch.compile(lambda x: x.cos() + 1)(torch.ones(8, device=device))
    except Exception as error:  # of many kinds: a missing C compiler, Python.h, or Triton
        print(f"inductor cannot compile here: {error}")
        return "aot_eager"
    return "inductor"


if __name__ == "__main__":
    main(train)
