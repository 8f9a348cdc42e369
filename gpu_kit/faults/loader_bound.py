"""Samples that the loop's own process unpacks. Fix: workers that do it ahead of the loop."""

import zlib
from collections.abc import Iterator

import numpy as np
import torch
from layers import make_mlp
from program import Options, main
from torch.utils.data import DataLoader, Dataset


class PackedSamples(Dataset):
    """Samples that are stored compressed."""

    def __init__(self, num_samples: int, num_features: int) -> None:
        values = np.random.default_rng(0).integers(0, 4, size=num_features * 16).astype(np.float32)
        self._packed = zlib.compress(values.tobytes(), 6)
        self._num_samples, self._num_features = num_samples, num_features

    def __len__(self) -> int:
        return self._num_samples

    def __getitem__(self, index: int) -> torch.Tensor:
        values = np.frombuffer(zlib.decompress(self._packed), np.float32)  # FAULT
        return torch.as_tensor(values[: self._num_features] + index % 7)


def train(options: Options) -> Iterator[None]:
    width, num_workers, batch_size = options.pick(gpu=(2048, 8, 32), cpu=(512, 2, 8))
    samples = PackedSamples(batch_size * 200, width)
    workers = {"num_workers": num_workers, "persistent_workers": True} if options.fixed else {}
    loader = DataLoader(samples, batch_size, pin_memory=options.device == "cuda", **workers)
    model = make_mlp(width, options.pick(gpu=8, cpu=2), options.device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    while True:
        for batch in loader:  # FAULT
            inputs = batch.to(options.device, non_blocking=True)
            optimizer.zero_grad()
            model(inputs).square().mean().backward()
            optimizer.step()
            yield


if __name__ == "__main__":
    main(train)
