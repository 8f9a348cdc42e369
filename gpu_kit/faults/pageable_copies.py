"""Batches in pageable memory, whose copies block the CPU. Fix: pinned memory, and copies that do not block."""

from collections.abc import Iterator
from itertools import cycle

import torch
from layers import make_mlp
from program import Options, main


def train(options: Options) -> Iterator[None]:
    model = make_mlp(4096, 4, options.device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    batches = [torch.randn(4096, 4096) for _ in range(4)]
    if options.fixed:
        batches = [batch.pin_memory() for batch in batches]
    for batch in cycle(batches):
        inputs = batch.to(options.device, non_blocking=True)  # FAULT
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        yield


if __name__ == "__main__":
    main(train)
