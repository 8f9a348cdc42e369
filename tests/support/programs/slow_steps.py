"""A training run in which some steps are slow, each in its own way.

Arguments: the run's folder, a file for the moments at which steps ended by the training's own clock, how many steps,
and as JSON which step is slow in which way. With a file in which ranks meet, it is one of two ranks.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

import kinetoscope
from kinetoscope.recording.window import slow_step_quota

SLEEP_S = 0.3


class Batches(Dataset):
    """Samples, some of them slow."""

    def __init__(self, slow, num_steps):
        self.slow, self.num_steps = slow, num_steps

    def __len__(self):
        return self.num_steps

    def __getitem__(self, step):
        if self.slow.get(step) == "data_wait":
            time.sleep(SLEEP_S)  # slow: data_wait
        return torch.ones(8)


class SlowFile:
    """A file for checkpoints with slow writes."""

    def write(self, content):
        time.sleep(SLEEP_S / 30)  # slow: checkpoint
        return len(content)

    def flush(self):
        pass


def slow_gradient(gradient):
    time.sleep(SLEEP_S)  # slow: backward
    return gradient


class Optimizer(torch.optim.SGD):
    is_slow = False

    @torch.no_grad()
    def step(self, closure=None):
        if self.is_slow:
            time.sleep(SLEEP_S)  # slow: optimizer
        return super().step(closure)


def train(profiler, slow, num_steps, ended_ns, rank):
    model = torch.nn.Linear(8, 1)
    optimizer = Optimizer(model.parameters(), 0.01)
    if torch.distributed.is_initialized():
        model = torch.nn.parallel.DistributedDataParallel(model)
    for step, batch in enumerate(DataLoader(Batches(slow, num_steps))):
        way = slow.get(step)
        if way == "forward" or (way == "late" and rank == 1):
            with kinetoscope.marker("look up", categories=("input",)):
                time.sleep(SLEEP_S)  # slow: forward
        time.sleep(0.003)
        loss = model(batch).square().mean()
        if way == "backward":
            loss.register_hook(slow_gradient)
        loss.backward()
        optimizer.is_slow = way == "optimizer"
        optimizer.step()
        optimizer.zero_grad()
        if way == "checkpoint":
            torch.save({"weight": torch.ones(8)}, SlowFile())
        profiler.step()
        ended_ns.append(time.monotonic_ns())


def main(out, times, num_steps, slow, meeting_place=""):
    rank = int(os.environ.get("RANK", "0"))
    torch.set_num_threads(1)
    if meeting_place:
        torch.distributed.init_process_group("gloo", init_method=f"file://{meeting_place}", rank=rank, world_size=2)
    slow_step_quota.MAX_PER_HOUR = slow_step_quota.MAX_CONSECUTIVE = 10_000  # the machine may make others slow, too
    slow, ended_ns = {int(step): way for step, way in json.loads(slow).items()}, []
    schedule = kinetoscope.cyclic_schedule(skip_first=1, active=5)
    with kinetoscope.profile(out, schedule=schedule, system=False, slow_steps=True, quiet=True) as profiler:
        train(profiler, slow, int(num_steps), ended_ns, rank)
    Path(f"{times}{rank}").write_text(json.dumps(ended_ns))
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
