"""Compiles a function when it is imported, for the programs of `fork_server`: when they compile, what torch imports
for that is there already, which takes two thirds of a second less."""

import torch

_model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
torch.compile(lambda rows: _model(rows).sum(), backend="eager", dynamic=False)(torch.ones(1, 2))
torch._dynamo.reset()
