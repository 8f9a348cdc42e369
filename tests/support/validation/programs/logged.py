"""Logging in each step: the loss and the norm of each gradient, by `.item()`, into a file that is flushed."""

import json
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

layers = [layer for _ in range(30) for layer in (nn.Linear(64, 64), nn.ReLU())]
model = nn.Sequential(*layers, nn.Linear(64, 1))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
loader = DataLoader(TensorDataset(torch.randn(50_000, 64)), batch_size=64, shuffle=True)
with tempfile.TemporaryFile("w") as log:
    for _ in range(1000):
        for (inputs,) in loader:
            loss = model(inputs).square().mean()
            optimizer.zero_grad()
            loss.backward()
            norms = {name: parameter.grad.norm().item() for name, parameter in model.named_parameters()}
            log.write(json.dumps({"loss": loss.item(), **norms}) + "\n")
            log.flush()
            optimizer.step()
