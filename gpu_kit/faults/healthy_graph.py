"""A forward and backward pass in one CUDA graph, which is captured once. It has no fault."""

from collections.abc import Iterator

import torch
from layers import make_mlp
from program import Options, main


def train(options: Options) -> Iterator[None]:
    model = make_mlp(2048, 16, options.device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
    inputs = torch.randn(1024, 2048, device=options.device)

    def compute() -> None:
        model(inputs).square().mean().backward()

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            compute()
    torch.cuda.current_stream().wait_stream(stream)
    optimizer.zero_grad(set_to_none=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        compute()
    while True:
        graph.replay()
        optimizer.step()
        yield


if __name__ == "__main__":
    main(train)
