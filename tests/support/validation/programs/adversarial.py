"""GAN: a generator and a discriminator, each with an optimizer of its own."""

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

NOISE, WIDTH, BATCH_SIZE = 32, 256, 64


def make_layers(first: int, last: int) -> nn.Sequential:
    hidden = [layer for _ in range(3) for layer in (nn.Linear(WIDTH, WIDTH), nn.LeakyReLU(0.2))]
    return nn.Sequential(nn.Linear(first, WIDTH), nn.LeakyReLU(0.2), *hidden, nn.Linear(WIDTH, last))


def loss_of(logits: Tensor, label: float) -> Tensor:
    return nn.functional.binary_cross_entropy_with_logits(logits, torch.full_like(logits, label))


generator, discriminator = make_layers(NOISE, 128), make_layers(128, 1)
of_generator = torch.optim.Adam(generator.parameters(), 2e-4, betas=(0.5, 0.999))
of_discriminator = torch.optim.Adam(discriminator.parameters(), 2e-4, betas=(0.5, 0.999))
loader = DataLoader(TensorDataset(torch.randn(20_000, 128)), batch_size=BATCH_SIZE, shuffle=True, drop_last=True)
for _ in range(1000):
    for (real,) in loader:
        fake = generator(torch.randn(BATCH_SIZE, NOISE))
        of_discriminator.zero_grad(set_to_none=False)
        (loss_of(discriminator(real), 1.0) + loss_of(discriminator(fake.detach()), 0.0)).backward()
        of_discriminator.step()
        of_generator.zero_grad(set_to_none=False)
        loss_of(discriminator(fake), 1.0).backward()
        of_generator.step()
