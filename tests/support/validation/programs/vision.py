"""Image classification: a small CNN on images that are cropped and flipped in Python, one by one."""

import random

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

SIZE = 24


class Images(Dataset[tuple[Tensor, int]]):
    def __init__(self) -> None:
        self.pixels = [[[random.random() for _ in range(32)] for _ in range(32)] for _ in range(64)]

    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image, top, left = self.pixels[index % 64], random.randrange(32 - SIZE), random.randrange(32 - SIZE)
        rows = [row[left : left + SIZE] for row in image[top : top + SIZE]]
        if random.random() < 0.5:
            rows = [row[::-1] for row in rows]
        normalized = [[(pixel - 0.5) / 0.25 for pixel in row] for row in rows]
        return torch.tensor([normalized] * 3), index % 10


model = nn.Sequential(
    nn.Conv2d(3, 16, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.Flatten(), nn.LazyLinear(10)
)
model(torch.zeros(1, 3, SIZE, SIZE))
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
for images, labels in DataLoader(Images(), batch_size=32):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
