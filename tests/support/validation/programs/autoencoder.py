"""Variational autoencoder: Normal distributions, and a DataLoader with one worker that makes noisy samples."""

import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence
from torch.utils.data import DataLoader, Dataset

NUM_PIXELS, NUM_LATENT = 784, 16


class Digits(Dataset[Tensor]):
    def __len__(self) -> int:
        return 100_000

    def __getitem__(self, index: int) -> Tensor:
        image = torch.zeros(28, 28)
        for at in range(28):
            image[at, (at * (index % 7) + index) % 28] = 1.0
        return (image + 0.1 * torch.randn(28, 28)).flatten()


encoder = nn.Sequential(nn.Linear(NUM_PIXELS, 256), nn.ReLU(), nn.Linear(256, 2 * NUM_LATENT))
decoder = nn.Sequential(nn.Linear(NUM_LATENT, 256), nn.ReLU(), nn.Linear(256, NUM_PIXELS))
optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], 1e-3)
for images in DataLoader(Digits(), batch_size=64, num_workers=1):
    mean, log_scale = encoder(images).chunk(2, dim=1)
    latent = Normal(mean, log_scale.exp())
    loss = nn.functional.mse_loss(decoder(latent.rsample()), images, reduction="sum")
    loss = loss + kl_divergence(latent, Normal(0.0, 1.0)).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
