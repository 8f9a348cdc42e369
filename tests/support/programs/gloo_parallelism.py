"""Training runs of real ranks on CPU that divide their work otherwise than by data alone.

One rank sleeps in each step. Arguments: ``1F1B``, ``GPipe``, ``all_to_all`` or ``tensor``; the late rank; the run's
folder; and the file in which ranks meet.
"""

import functools
import os
import sys
import time
from collections.abc import Callable

import torch
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import kinetoscope

NUM_STEPS, NUM_PARTS, SLEEP_S = 10, 4, 0.05
SCHEDULES = {"1F1B": Schedule1F1B, "GPipe": ScheduleGPipe}


class Stage(nn.Module):
    """A layer that sleeps in each forward pass, if it is late."""

    def __init__(self, is_late: bool, sleep_s: float = SLEEP_S) -> None:
        super().__init__()
        self.linear, self.sleep_s = nn.Linear(64, 64), sleep_s if is_late else 0.0

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        time.sleep(self.sleep_s)
        return self.linear(batch)


def pipeline(name: str, rank: int, num_ranks: int, is_late: bool) -> Callable[[], None]:
    """Return a step of a pipeline.

    It sleeps for longer, since Python of other stages takes long where many programs share the cores.
    """
    module = Stage(is_late, 4 * SLEEP_S)
    stage = PipelineStage(module, rank, num_ranks, torch.device("cpu"))
    schedule = SCHEDULES[name](stage, NUM_PARTS, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.SGD(module.parameters(), 0.01)
    batch, target = torch.randn(32, 64), torch.randn(32, 64)

    def step() -> None:
        optimizer.zero_grad()
        arguments = (batch,) if rank == 0 else ()
        schedule.step(*arguments, **({"target": target} if rank == num_ranks - 1 else {}))
        optimizer.step()

    return step


def exchange(rank: int, num_ranks: int, is_late: bool) -> Callable[[], None]:
    """Return a step with all-to-alls of unequal sizes."""

    def step() -> None:
        for _ in range(NUM_PARTS):
            sent, received = [8 * (rank + 1)] * num_ranks, [8 * (other + 1) for other in range(num_ranks)]
            output = torch.empty(sum(received), 16)
            distributed.all_to_all_single(output, torch.randn(sum(sent), 16), received, sent)
            if is_late:
                time.sleep(SLEEP_S)
            output.square().sum()

    return step


def tensor_parallel(rank: int, num_ranks: int, is_late: bool) -> Callable[[], None]:
    """Return a step of tensor parallel pairs of ranks, which are data parallel to each other.

    It sleeps for longer, since calls of DTensors take long where many programs share the cores.
    """
    mesh = init_device_mesh("cpu", (num_ranks // 2, 2), mesh_dim_names=("dp", "tp"))
    plans = ColwiseParallel(), RowwiseParallel()
    module = nn.Sequential(*(Stage(is_late, 10 * SLEEP_S) for _ in plans))
    parallelize_module(module, mesh["tp"], {f"{number}.linear": plan for number, plan in enumerate(plans)})
    optimizer = torch.optim.SGD(module.parameters(), 0.01, foreach=False)

    def step() -> None:
        optimizer.zero_grad()
        module(torch.randn(32, 64)).square().mean().backward()
        for parameter in module.parameters():
            distributed.all_reduce(parameter.grad.to_local(), group=mesh.get_group("dp"))
        optimizer.step()

    return step


STEPS = {"all_to_all": exchange, "tensor": tensor_parallel} | {
    name: functools.partial(pipeline, name) for name in SCHEDULES
}


def main(name: str, late_rank: str, out: str, meeting_place: str) -> None:
    rank, num_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{meeting_place}", rank=rank, world_size=num_ranks)
    is_late = rank == int(late_rank)
    step = STEPS[name](rank, num_ranks, is_late)
    schedule = kinetoscope.cyclic_schedule(skip_first=1, warmup=1, active=NUM_STEPS)
    with kinetoscope.profile(
        out, schedule=schedule, system=False, profile_memory=False, record_shapes=True, quiet=True
    ) as profiler:
        for _ in profiler.batches(range(NUM_STEPS + 2)):
            step()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
