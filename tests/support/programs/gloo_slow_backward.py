"""A data parallel training run of real ranks on CPU without operators; one rank is slow in its backward pass.

Arguments: ``function`` (of autograd, with samples of the stack) or ``hook`` (of a tensor, in a marker); the late rank;
the run's folder; and the file in which ranks meet.
"""

import os
import sys
import time

import torch
from torch import distributed, nn

import kinetoscope

NUM_STEPS, SLEEP_S = 12, 0.4
in_hook = kinetoscope.marker("scale gradients")


class SlowFunction(torch.autograd.Function):
    """The identity, with a backward pass that sleeps."""

    @staticmethod
    def forward(context: object, values: torch.Tensor) -> torch.Tensor:
        return values.view_as(values)

    @staticmethod
    def backward(context: object, gradient: torch.Tensor) -> torch.Tensor:
        time.sleep(SLEEP_S)
        return gradient


class Model(nn.Module):
    """Two layers with a function of autograd or a hook in between."""

    def __init__(self, name: str, is_late: bool) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 64), nn.Linear(64, 8)
        self.name, self.is_late = name, is_late

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        values = self.first(batch)
        if self.name == "hook":
            values.register_hook(self.scale)
        elif self.is_late:
            values = SlowFunction.apply(values)
        return self.second(values)

    def scale(self, gradient: torch.Tensor) -> torch.Tensor:
        with in_hook:
            time.sleep(SLEEP_S if self.is_late else 0)
        return 0.5 * gradient


def main(name: str, late_rank: str, out: str, meeting_place: str) -> None:
    rank, num_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{meeting_place}", rank=rank, world_size=num_ranks)
    model = nn.parallel.DistributedDataParallel(Model(name, is_late=rank == int(late_rank)))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    with kinetoscope.profile(out, torch=False, system=False, diagnose=name == "function", quiet=True) as profiler:
        for _ in range(NUM_STEPS):
            optimizer.zero_grad()
            model(torch.randn(32, 64)).square().mean().backward()
            optimizer.step()
            profiler.step()
    del model  # before its group
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
