"""Small training programs for tests of `kinetoscope try`, and a search for processes that it left running."""

import psutil

from kinetoscope.autoinstrument.settings import ENVIRONMENT_VARIABLE

GUARD_JOB = "kinetoscope.experiments.guard_job"

TRAIN = """
import os, sys, time, torch
if "RANK" in os.environ:
    torch.distributed.init_process_group("gloo")
model = torch.nn.Sequential(*[torch.nn.Linear(16, 16) for _ in range(10)])
if "RANK" in os.environ:
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), 1e-3, momentum=0.9)
print("training starts", flush=True)
try:
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000):
        optimizer.zero_grad()
        model(torch.randn(4, 16)).square().mean().backward()
        optimizer.step()
        if len(sys.argv) > 2: time.sleep(float(sys.argv[2]))
finally:
    open("finally", "w").close()
"""
"""Trains for 100,000 steps by default, and sleeps in each step for the seconds of the second argument: such steps take
about as long on a busy machine. Writes a file in its ``finally`` block, which must not run at the last measured step.
"""

TWO_FAULTS = """
import time, torch
from torch.utils.data import DataLoader, Dataset
torch.set_num_threads(1)

class Samples(Dataset):
    def __len__(self):
        return 100_000
    def __getitem__(self, index):
        time.sleep(0.012)
        return torch.full((16,), index / 100_000)

class Policy(torch.distributions.Normal):
    def __init__(self, mean, validate_args=None):
        super().__init__(mean, torch.ones(()), validate_args)
        if self._validate_args:
            time.sleep(0.024)

model = torch.nn.Linear(16, 1)
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
for batch in DataLoader(Samples(), batch_size=2):
    optimizer.zero_grad()
    time.sleep(0.024)
    (-Policy(model(batch)).log_prob(batch[:, :1])).mean().backward()
    optimizer.step()
"""
"""A step of 72 ms sleeps in the dataset for 24 ms, which workers hide, and in the validation of a distribution for 24
ms."""

SCRIPT = """
python train.py 100000 0.02
rm precious
"""
STUBBORN_SCRIPT = "trap '' TERM\n" + SCRIPT

VARIANTS = """
import sys, time
from kinetoscope.variants import variant

def wrap_step(before):
    sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(before)

@variant("slow", find_values=lambda facts: [True], code="time.sleep(0.05)")
def apply_slow(value, applied):
    applied()
    wrap_step(lambda *_: time.sleep(0.05))

@variant("crash", find_values=lambda facts: [True], code="1 / 0")
def apply_crash(value, applied):
    raise ValueError("this variant crashes")

@variant("out_of_memory", find_values=lambda facts: [True], code="bytearray()")
def apply_memory(value, applied):
    def fail(*_):
        raise MemoryError("no memory is left")
    wrap_step(fail)

@variant("exit", find_values=lambda facts: [True], code="sys.exit()")
def apply_exit(value, applied):
    wrap_step(lambda *_: sys.exit(3))

@variant("half_rate", find_values=lambda facts: [True], code="lr=lr / 2", keeps_results=False)
def apply_half_rate(value, applied):
    def halve(optimizer, *_):
        for group in optimizer.param_groups:
            group["lr"] = 5e-4
        applied()
    wrap_step(halve)

@variant("idle", find_values=lambda facts: [True], code="pass")
def apply_idle(value, applied):
    pass
"""


def write_programs(folder):
    """Write the programs into a folder, with a file that the scripts would delete."""
    for name, text in {
        "train.py": TRAIN,
        "two_faults.py": TWO_FAULTS,
        "train.sh": SCRIPT,
        "stubborn.sh": STUBBORN_SCRIPT,
        "mine.py": VARIANTS,
        "precious": "",
    }.items():
        (folder / name).write_text(text)


def find_left_running(folder):
    """Return the processes of starts with files below a folder, and their guard, that are still there."""
    found = []
    for process in psutil.process_iter():
        try:
            is_guard = GUARD_JOB in (arguments := process.cmdline()) and str(folder) in arguments[-1]
            if is_guard or str(folder) in process.environ().get(ENVIRONMENT_VARIABLE, ""):
                found.append(process)
        except psutil.Error:
            continue
    return [process for process in found if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]
