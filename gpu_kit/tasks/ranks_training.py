"""DistributedDataParallel in which rank 1 is late every third step: ``torchrun ranks_training.py BACKEND DEVICE``."""

import os
import sys
import time

import torch
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel

NUM_STEPS, EVERY, LATE_S = 40, 3, 0.02


def main(backend: str, device: str) -> None:
    rank = int(os.environ["LOCAL_RANK"])
    if device == "cuda":
        device = f"cuda:{rank % torch.cuda.device_count()}"
        torch.cuda.set_device(device)
    else:
        torch.set_num_threads(1)
    init_process_group(backend)
    width = 2048 if device != "cpu" else 256
    model = torch.nn.Sequential(*(torch.nn.Linear(width, width) for _ in range(4))).to(device)
    parallel = DistributedDataParallel(model)
    optimizer = torch.optim.SGD(parallel.parameters(), 1e-4)
    inputs = torch.randn(256, width, device=device)
    for step in range(NUM_STEPS):
        if rank == 1 and step % EVERY == 0:
            time.sleep(LATE_S)  # FAULT
        optimizer.zero_grad()
        parallel(inputs).square().mean().backward()
        optimizer.step()
        if device != "cpu":
            torch.cuda.synchronize()
    destroy_process_group()


if __name__ == "__main__":
    main(*sys.argv[1:])
