"""Outputs of every step that are kept until the device is full. Fix: keep their mean.

Most of the memory is taken at the start, so that it takes some dozens of steps.
"""

from collections.abc import Iterator

import torch
from layers import make_mlp
from program import Options, main

ROOM_BYTES = 5 << 30
"""40 kept outputs of 128 MiB fill it: after the recorded steps, and before the last one."""


def train(options: Options) -> Iterator[None]:
    model = make_mlp(4096, 3, options.device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    inputs = torch.randn(8192, 4096, device=options.device)
    taken = None
    outputs = []
    while True:
        optimizer.zero_grad()
        output = model(inputs)
        output.square().mean().backward()
        optimizer.step()
        outputs.append(output.mean().detach() if options.fixed else output.detach())  # FAULT
        if taken is None:
            free, _ = torch.cuda.mem_get_info()
            taken = torch.empty(max(0, free - ROOM_BYTES), dtype=torch.uint8, device=options.device)
        yield


if __name__ == "__main__":
    main(train)
