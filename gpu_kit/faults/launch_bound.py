"""A deep, narrow model whose kernels are shorter than their launches. Fix: one CUDA graph for the whole step."""

from collections.abc import Callable, Iterator

import torch
from layers import make_mlp
from program import Options, main


def train(options: Options) -> Iterator[None]:
    model = make_mlp(256, 96, options.device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    inputs = torch.randn(64, 256, device=options.device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        model(inputs).square().mean().backward()  # FAULT
        optimizer.step()

    run_step = captured(step, optimizer) if options.fixed else step
    while True:
        run_step()
        yield


def captured(step: Callable[[], None], optimizer: torch.optim.Optimizer) -> Callable[[], None]:
    """Capture a whole step, after some on another stream that allocate what it needs."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


if __name__ == "__main__":
    main(train)
