"""Small training programs for tests of `kinetoscope try`: without loaders, for 100,000 steps by default."""

TRAIN = """
import os, sys, torch
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
finally:
    open("finally", "w").close()
"""
"""Writes a file in its ``finally`` block, which must not run at the last measured step."""

SCRIPT = """
python train.py
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
        "train.sh": SCRIPT,
        "stubborn.sh": STUBBORN_SCRIPT,
        "mine.py": VARIANTS,
        "precious": "",
    }.items():
        (folder / name).write_text(text)
