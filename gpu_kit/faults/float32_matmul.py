"""Matmuls in full float32. Fix: TF32 on the tensor cores."""

from collections.abc import Iterator

import torch
from layers import make_mlp
from program import Options, main


def train(options: Options) -> Iterator[None]:
    torch.set_float32_matmul_precision("high" if options.fixed else "highest")  # FAULT
    model = make_mlp(4096, 4, options.device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    inputs = torch.randn(2048, 4096, device=options.device)
    while True:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        yield


if __name__ == "__main__":
    main(train)
