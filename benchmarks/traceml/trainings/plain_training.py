"""A training that knows nothing of profilers, as most are."""

import torch
from torch.utils.data import DataLoader

model = torch.nn.Linear(64, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for inputs in DataLoader([torch.randn(64)] * 400, batch_size=8):
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
