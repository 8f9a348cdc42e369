"""Programs with a known fix: each one runs as it is, or with ``edited`` as its argument."""

from dataclasses import dataclass

_HEAD = """
import gc, os, sys, torch
from torch.utils.data import DataLoader, Dataset
is_edited = "edited" in sys.argv
torch.set_num_threads(1)

class Samples(Dataset):
    def __init__(self, num_loops):
        self.num_loops = num_loops
    def __len__(self):
        return 100_000
    def __getitem__(self, index):
        total = 0
        for number in range(self.num_loops):
            total += number
        return torch.full((64,), float(index % 7))

def train(model, optimizer, batches):
    for batch in batches:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()

def without_loader(shape=(8, 64)):
    while True:
        yield torch.randn(*shape)
"""
_MODEL = "model = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(NUM)])\n"
_TRAIN = "train(model, optimizer, without_loader())\n"
_SGD = "optimizer = torch.optim.SGD(model.parameters(), 1e-3)\n"


@dataclass(frozen=True)
class EditedProgram:
    """A program, and the variant that stands for its edit."""

    text: str
    fix: str
    num_ranks: int = 1


def _program(body: str, num_layers: int = 4) -> str:
    return _HEAD + _MODEL.replace("NUM", str(num_layers)) + body


_LOADER = "train(model, optimizer, DataLoader(Samples(NUM), 8, num_workers=2 if is_edited else 0))\n"
PROGRAMS = {
    "loader, heavy": EditedProgram(_program(_SGD + _LOADER.replace("NUM", "120_000")), "num_workers=2"),
    "loader, light": EditedProgram(_program(_SGD + _LOADER.replace("NUM", "30_000")), "num_workers=2"),
    "too many threads": EditedProgram(
        _program(
            "torch.set_num_threads(1 if is_edited else 8)\n" + _SGD + "train(model, optimizer, without_loader())\n", 30
        ),
        "num_threads=1",
    ),
    "GC pauses": EditedProgram(
        _program(
            "from collections import deque\n"
            "def with_records(batches):\n"
            "    recent = deque(maxlen=10)\n"
            "    for number, batch in enumerate(batches):\n"
            "        recent.append([[index] for index in range(60_000)])\n"
            "        if is_edited and number == 1:\n"
            "            gc.collect(); gc.freeze(); gc.set_threshold(100_000, 50, 50)\n"
            "        yield batch\n"
            "gc.freeze()  # leaves the objects of imported modules out of the pauses\n"
            + _SGD
            + "train(model, optimizer, with_records(without_loader()))\n"
        ),
        "relaxed_gc",
    ),
    "unfused optimizer": EditedProgram(
        _program(
            "optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=is_edited or None)\n"
            "train(model, optimizer, without_loader())\n",
            100,
        ),
        "fused",
    ),
    "validated distributions": EditedProgram(
        _program(
            _SGD + "class Policy(torch.nn.Module):\n"
            "    def forward(self, batch):\n"
            "        total = model(batch).mean()\n"
            "        for _ in range(40):\n"
            "            scale = torch.ones(64)\n"
            "            total = total + torch.distributions.Normal(batch, scale).log_prob(batch).mean()\n"
            "        return total\n"
            "if is_edited: torch.distributions.Distribution.set_default_validate_args(False)\n"
            "train(Policy(), optimizer, without_loader())\n"
        ),
        "validate_args",
    ),
    "small buckets": EditedProgram(
        _program(
            'torch.distributed.init_process_group("gloo")\n'
            "model = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=25 if is_edited else 0.02)\n"
            + _SGD
            + "train(model, optimizer, without_loader())\n",
            60,
        ),
        "bucket_cap_mb=25",
        num_ranks=2,
    ),
    "four workers for cheap batches": EditedProgram(
        _program(_SGD + "train(model, optimizer, DataLoader(Samples(10), 8, num_workers=4 if is_edited else 0))\n"),
        "num_workers=4",
    ),
    "too few threads": EditedProgram(
        _HEAD + "torch.set_num_threads(1 if is_edited else os.cpu_count())\n"
        "model = torch.nn.Linear(1024, 1024)\n" + _SGD + "train(model, optimizer, without_loader((256, 1024)))\n",
        "num_threads=1",
    ),
}

BUSY_PROGRAMS = ("unfused optimizer", "GC pauses")
"""Programs that compute on one core, and gain more than 30 %, for runs with busy processes."""

SAME_VARIANTS = """
from kinetoscope.variants import variant

def add(name):
    @variant(name, find_values=lambda facts: [True], code="pass")
    def apply(value, applied):
        applied()

for number in range(6):
    add(f"nothing_{number}")
"""
"""Six variants that change nothing, for runs in which each "faster" or "slower" is wrong."""
