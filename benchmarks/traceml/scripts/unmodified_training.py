"""An uninstrumented training run. Its steps take about 0.2 ms; `--end-at STEP --ending kill` ends it early.

It prints when its first step was over, and when its loop was, in nanoseconds of unix time.
"""

import argparse
import os
import signal
import sys
import time

import torch
from torch.utils.data import DataLoader

torch.set_num_threads(1)
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=400)
parser.add_argument("--end-at", type=int, default=-1)
parser.add_argument("--ending", choices=("exit", "kill", "wait"), default="exit")
arguments = parser.parse_args()

model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step, inputs in enumerate(DataLoader([torch.randn(2, 64)] * arguments.steps, batch_size=None)):
    optimizer.zero_grad()
    model(inputs).square().mean().backward()
    optimizer.step()
    if step == 0:
        print("first", time.time_ns(), flush=True)
    if step == arguments.end_at:
        print("end", time.time_ns(), flush=True)
        if arguments.ending == "exit":
            sys.exit(3)
        if arguments.ending == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)
print("last", time.time_ns(), flush=True)
