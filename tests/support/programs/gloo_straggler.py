"""A training run of two real ranks on CPU, in which one of them is late, and both sleep between steps.

Each rank writes the start of the backward pass of each step, in which ranks wait for one another. The analysis is
compared with these times. Arguments: the run's folder, and the file in which ranks meet.
"""

import json
import os
import sys
import time
from pathlib import Path

import torch
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

import kinetoscope

NUM_STEPS, EVERY, LATE_RANK, SLEEP_S = 40, 3, 1, 0.02


def main(out: str, meeting_place: str) -> None:
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    init_process_group("gloo", init_method=f"file://{meeting_place}", rank=rank, world_size=2)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Linear(256, 1)))
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loader = DataLoader(torch.randn((NUM_STEPS + 2) * 16, 256), batch_size=16)
    schedule = kinetoscope.cyclic_schedule(skip_first=1, warmup=1, active=NUM_STEPS)
    came_ns = []
    with kinetoscope.profile(out, schedule=schedule, system=False, profile_memory=False, quiet=True) as profiler:
        for step, batch in enumerate(loader):
            if rank == LATE_RANK and step % EVERY == 0:
                time.sleep(SLEEP_S)
            loss = model(batch).square().mean()
            came_ns.append(time.monotonic_ns())
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
            time.sleep(SLEEP_S)
    Path(f"{meeting_place}-rank{rank}").write_text(json.dumps(came_ns))
    destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
