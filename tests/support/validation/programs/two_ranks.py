"""Data-parallel training: two ranks on gloo, whose gradients are reduced in very small buckets."""

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

distributed.init_process_group("gloo")
torch.set_num_threads(1)
layers = [layer for _ in range(40) for layer in (nn.Linear(96, 96), nn.ReLU())]
model = DistributedDataParallel(nn.Sequential(*layers, nn.Linear(96, 1)), bucket_cap_mb=0.03)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
samples = TensorDataset(torch.randn(20_000, 96))
sampler = DistributedSampler(samples)
loader = DataLoader(samples, batch_size=32, sampler=sampler)
for epoch in range(1000):
    sampler.set_epoch(epoch)
    for (inputs,) in loader:
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
