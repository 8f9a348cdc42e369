"""Samples from numpy in float64, and a model that was converted to fit them. Fix: both in float32."""

from collections.abc import Iterator

import numpy as np
import torch
from layers import make_mlp
from program import Options, main


def train(options: Options) -> Iterator[None]:
    width, batch_size = options.pick(gpu=(2048, 4096), cpu=(512, 64))
    samples = torch.as_tensor(np.random.default_rng(0).normal(size=(batch_size, width)))  # FAULT
    inputs = samples.to(options.device)
    if options.fixed:
        inputs = inputs.float()
    model = make_mlp(width, 4, options.device).to(inputs.dtype)  # FAULT
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    while True:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()  # FAULT
        optimizer.step()
        yield


if __name__ == "__main__":
    main(train)
