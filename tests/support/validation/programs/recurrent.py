"""Sequences: a recurrent cell that is called for each time step in a loop of Python."""

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

NUM_TIMES, WIDTH = 60, 48


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.cell, self.head = nn.LSTMCell(8, WIDTH), nn.Linear(WIDTH, 1)

    def forward(self, sequences: Tensor) -> Tensor:
        hidden = sequences.new_zeros(len(sequences), WIDTH)
        state = hidden, hidden
        for values in sequences.unbind(1):
            state = self.cell(values, state)
        return self.head(state[0]).squeeze(1)


sequences = torch.randn(20_000, NUM_TIMES, 8)
loader = DataLoader(TensorDataset(sequences, sequences.mean((1, 2))), batch_size=32, shuffle=True)
model = Recurrent()
optimizer = torch.optim.RMSprop(model.parameters(), 1e-3)
for _ in range(1000):
    for inputs, targets in loader:
        optimizer.zero_grad()
        nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()
