"""Tabular data: 60 embeddings and an MLP, so that the optimizer has many small parameters."""

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

NUM_COLUMNS, NUM_VALUES = 60, 50


class Tabular(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.columns = nn.ModuleList(nn.Embedding(NUM_VALUES, 4) for _ in range(NUM_COLUMNS))
        self.head = nn.Sequential(nn.Linear(4 * NUM_COLUMNS, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, rows: Tensor) -> Tensor:
        embedded = [column(rows[:, index]) for index, column in enumerate(self.columns)]
        return self.head(torch.cat(embedded, 1)).squeeze(1)


rows = torch.randint(NUM_VALUES, (50_000, NUM_COLUMNS))
loader = DataLoader(TensorDataset(rows, rows.sum(1) / 1000), batch_size=128, shuffle=True)
model = Tabular()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for _ in range(1000):
    for inputs, targets in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
