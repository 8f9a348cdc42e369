"""Many objects: sentences in Python with references to each other, which the garbage collector has to follow."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import nn

VOCABULARY = 1000


@dataclass
class Token:
    number: int
    sentence: Sentence


@dataclass
class Sentence:
    label: float
    tokens: list[Token] = field(default_factory=list)


def make_sentence(length: int) -> Sentence:
    sentence = Sentence(random.random())
    sentence.tokens = [Token(random.randrange(VOCABULARY), sentence) for _ in range(length)]
    return sentence


def make_batches() -> Iterator[list[Sentence]]:
    corpus = [make_sentence(30) for _ in range(10_000)]
    while True:
        yield [make_sentence(30) for _ in range(32)] + random.sample(corpus, 32)


model = nn.Sequential(nn.EmbeddingBag(VOCABULARY, 64), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for batch in make_batches():
    numbers = torch.tensor([[token.number for token in sentence.tokens] for sentence in batch])
    labels = torch.tensor([sentence.label for sentence in batch])
    optimizer.zero_grad()
    nn.functional.mse_loss(model(numbers).squeeze(1), labels).backward()
    optimizer.step()
