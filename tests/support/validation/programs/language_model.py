"""Language model: a small transformer that predicts the next of random tokens."""

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

VOCABULARY, LENGTH, WIDTH = 500, 48, 96


class Tokens(Dataset[Tensor]):
    def __init__(self) -> None:
        self.tokens = torch.randint(VOCABULARY, (200_000,))

    def __len__(self) -> int:
        return len(self.tokens) - LENGTH - 1

    def __getitem__(self, index: int) -> Tensor:
        return self.tokens[index : index + LENGTH + 1]


class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(LENGTH)
        return self.head(self.layers(self.embedding(tokens), mask, is_causal=True))


model = LanguageModel()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for tokens in DataLoader(Tokens(), batch_size=8, shuffle=True):
    optimizer.zero_grad()
    logits = model(tokens[:, :-1])
    nn.functional.cross_entropy(logits.reshape(-1, VOCABULARY), tokens[:, 1:].reshape(-1)).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
