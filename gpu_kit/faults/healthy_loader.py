"""A DataLoader whose workers are ahead of the loop, with pinned memory. It has no fault."""

from collections.abc import Iterator

import torch
from layers import make_mlp
from program import Options, main
from torch.utils.data import DataLoader, TensorDataset


def train(options: Options) -> Iterator[None]:
    width, batch_size, num_workers = options.pick(gpu=(4096, 512, 4), cpu=(256, 16, 1))
    samples = TensorDataset(torch.randn(batch_size * 8, width))
    loader = DataLoader(
        samples, batch_size, num_workers=num_workers, persistent_workers=True, pin_memory=options.device == "cuda"
    )
    model = make_mlp(width, options.pick(gpu=24, cpu=4), options.device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    while True:
        for (batch,) in loader:
            inputs = batch.to(options.device, non_blocking=True)
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
            yield


if __name__ == "__main__":
    main(train)
