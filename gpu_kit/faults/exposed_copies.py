"""Copies from pinned memory between the kernels that need them. Fix: the next batch on a stream of its own."""

from collections.abc import Iterator
from itertools import cycle

import torch
from layers import make_mlp
from program import Options, main


def train(options: Options) -> Iterator[None]:
    model = make_mlp(4096, 4, options.device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    batches = [torch.randn(8192, 4096).pin_memory() for _ in range(3)]
    for inputs in (prefetched if options.fixed else copied)(batches):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
        yield


def copied(batches: list[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Copy each batch when the loop asks for it."""
    for batch in cycle(batches):
        yield batch.to("cuda", non_blocking=True)  # FAULT


def prefetched(batches: list[torch.Tensor]) -> Iterator[torch.Tensor]:
    """Copy each batch while the loop computes on the one before."""
    stream, main_stream = torch.cuda.Stream(), torch.cuda.current_stream()
    source = cycle(batches)

    def copy_next() -> torch.Tensor:
        with torch.cuda.stream(stream):
            return next(source).to("cuda", non_blocking=True)

    following = copy_next()
    while True:
        main_stream.wait_stream(stream)
        current = following
        current.record_stream(main_stream)
        following = copy_next()
        yield current


if __name__ == "__main__":
    main(train)
