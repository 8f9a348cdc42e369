"""Thresholds of memory growth and memory limits."""

from kinetoscope.analysis.memory.memory import MemoryRow
from kinetoscope.analysis.memory.memory_growth import MemoryHolder
from kinetoscope.analysis.memory.memory_owners import MemoryOwner
from support.synthetic_evidence import Run, find
from support.synthetic_evidence.thresholds import threshold

GROWTH = 1_000_000


def growing(growth=GROWTH, *, peak=10**9, **parts):
    row = MemoryRow(rank=0, device=0, peak_bytes=peak, peak_step=None, growth_bytes_per_step=round(growth), **parts)
    return find("memory_growth", Run(memory=[row]))


@threshold("findings.rules.memory_growth._MIN_GROWTH_SHARE", 0.0001)
def grows_by_a_share(share):
    return growing(share * 10**9) is not None


@threshold("findings.rules.memory_growth._MIN_GROWTH_BYTES", 10_000)
def grows_by_bytes(num_bytes):
    return growing(num_bytes, peak=10**6) is not None


@threshold("findings.rules.memory_growth._MIN_TOTAL_SHARE", 0.01)
def certainly_grows(share):
    return growing(share * 10**9 / 10).confidence == "high"


@threshold("findings.rules.memory_growth._MIN_SHARE_OF_PART", 0.8)
def is_of_the_optimizer(share):
    holder = MemoryHolder(
        operator="aten::add", line=None, category="optimizer", steps=(), bytes_per_step=round(share * GROWTH)
    )
    return "in the optimizer" in growing(holders=(holder,)).title


@threshold("findings.rules.memory_growth._MIN_OWNED_SHARE", 0.2)
def names_the_owner(share):
    numbers = {"num_steps": 10, "num_tensors": 10, "num_graphs": 0, "device": 0}
    owner = MemoryOwner(
        name="losses", kind="list", location="train", line=None, bytes_per_step=round(share * GROWTH), **numbers
    )
    return "retained by losses" in growing(owners=(owner,)).title


@threshold("findings.rules.memory_limit._MIN_FULL_SHARE", between=(0.9, 0.97))
def is_full(share):
    row = MemoryRow(rank=0, device=0, peak_bytes=round(share * 10**9), peak_step=None)
    return find("memory_limit", Run(memory=[row], gpu={"bytes_by_device": {0: 10**9}})) is not None
