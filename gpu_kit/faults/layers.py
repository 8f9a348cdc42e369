"""Small models that several planted programs share."""

import torch
from torch import nn


def make_mlp(width: int, num_layers: int, device: str) -> nn.Sequential:
    """Return layers of one width with ReLUs between them."""
    layers = [layer for _ in range(num_layers) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers).to(device)


class Block(nn.Module):
    """A block of a transformer: attention and an MLP, each after a norm."""

    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(batch, length, 3, self.num_heads, width // self.num_heads)
        queries, keys, values = qkv.permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x))


def make_transformer(width: int, num_layers: int, device: str, num_heads: int = 8) -> nn.Sequential:
    """Return a stack of blocks, which maps ``[batch, length, width]`` to the same shape."""
    return nn.Sequential(*(Block(width, num_heads) for _ in range(num_layers))).to(device)
