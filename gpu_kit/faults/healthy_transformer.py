"""A transformer in bfloat16 whose device is always busy. It has no fault."""

from collections.abc import Iterator

import torch
from layers import make_transformer
from program import Options, main


def train(options: Options) -> Iterator[None]:
    width, num_layers, batch_size, length = options.pick(gpu=(2048, 8, 8, 1024), cpu=(128, 2, 4, 64))
    model = make_transformer(width, num_layers, options.device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    inputs = torch.randn(batch_size, length, width, device=options.device)
    while True:
        optimizer.zero_grad()
        with torch.autocast(options.device, torch.bfloat16, enabled=options.device == "cuda"):
            loss = model(inputs).square().mean()
        loss.backward()
        optimizer.step()
        yield


if __name__ == "__main__":
    main(train)
