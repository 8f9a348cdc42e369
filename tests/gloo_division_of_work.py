"""Training runs of real ranks on CPU that divide their work otherwise than by data: pipelines and all-to-alls.

One rank sleeps in each step. Arguments: ``1F1B``, ``GPipe`` or ``all_to_all``; the late rank; the run's folder; and the
file in which ranks meet.
"""

import os
import sys
import time
from collections.abc import Callable

import torch
from torch import distributed, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

import kinetoscope

NUM_STEPS, NUM_PARTS, SLEEP_S = 10, 4, 0.05
SCHEDULES = {"1F1B": Schedule1F1B, "GPipe": ScheduleGPipe}


class Stage(nn.Module):
    """A stage that sleeps in each forward pass, if it is late."""

    def __init__(self, is_late: bool) -> None:
        super().__init__()
        self.linear, self.is_late = nn.Linear(64, 64), is_late

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        if self.is_late:
            time.sleep(SLEEP_S)
        return self.linear(batch)


def pipeline(name: str, rank: int, num_ranks: int, is_late: bool) -> Callable[[], None]:
    """Return a step of a pipeline."""
    module = Stage(is_late)
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


def main(name: str, late_rank: str, out: str, meeting_place: str) -> None:
    rank, num_ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{meeting_place}", rank=rank, world_size=num_ranks)
    is_late = rank == int(late_rank)
    step = exchange(rank, num_ranks, is_late) if name == "all_to_all" else pipeline(name, rank, num_ranks, is_late)
    schedule = kinetoscope.cyclic_schedule(skip_first=1, warmup=1, active=NUM_STEPS)
    with kinetoscope.profile(
        out, schedule=schedule, system=False, profile_memory=False, record_shapes=True, quiet=True
    ) as profiler:
        for _ in profiler.batches(range(NUM_STEPS + 2)):
            step()
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
