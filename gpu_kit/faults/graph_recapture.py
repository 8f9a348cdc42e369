"""A CUDA graph of the forward and backward pass that is captured anew in every step. Fix: capture it once."""

from collections.abc import Iterator

import torch
from layers import make_mlp
from program import Options, main


def train(options: Options) -> Iterator[None]:
    model = make_mlp(1024, 32, options.device)
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)
    inputs = torch.randn(1024, 1024, device=options.device)

    def compute() -> None:
        model(inputs).square().mean().backward()

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            compute()
    torch.cuda.current_stream().wait_stream(stream)
    graph = None
    while True:
        if graph is None or not options.fixed:
            optimizer.zero_grad(set_to_none=True)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):  # FAULT
                compute()
        graph.replay()
        optimizer.step()
        yield


if __name__ == "__main__":
    main(train)
