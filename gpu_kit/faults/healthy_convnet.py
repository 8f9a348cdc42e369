"""A convolutional network in bfloat16 with channels last. It has no fault."""

from collections.abc import Iterator
from itertools import pairwise

import torch
from program import Options, main
from torch import nn


def train(options: Options) -> Iterator[None]:
    channels = (3, 128, 256, 512, 512)
    layers = [
        layer
        for before, after in pairwise(channels)
        for layer in (nn.Conv2d(before, after, 3, 2, 1), nn.BatchNorm2d(after), nn.ReLU())
    ]
    model = nn.Sequential(*layers).to(options.device)
    model = model.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue] - its stubs lack this form
    optimizer = torch.optim.SGD(model.parameters(), 1e-4, momentum=0.9)
    images = torch.randn(256, 3, 224, 224, device=options.device).to(memory_format=torch.channels_last)
    while True:
        optimizer.zero_grad()
        with torch.autocast(options.device, torch.bfloat16):
            loss = model(images).square().mean()
        loss.backward()
        optimizer.step()
        yield


if __name__ == "__main__":
    main(train)
