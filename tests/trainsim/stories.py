"""Named runs for tests: settings drawn from a seed, each with a story.

A test that names one of these says what is wrong with its run. The same name gives the same bytes.
"""

from trainsim.planted import planted_run
from trainsim.scenarios import healthy_settings, planted_settings

SLOW_DATALOADER = planted_settings(0, "slow_loader")
"""Decoding takes the workers of each rank 5 ms more for each batch than it should: all ranks wait for data."""
ONE_SLOW_DATALOADER = planted_settings(2, "slow_loader", rank=1)
"""Rank 1 reads its shards from a slow disk: it waits for data, and the three others wait for it."""
SLOW_DATALOADER_ON_CPU = planted_run(579_700).settings
"""Eight ranks without a GPU, all with a slow DataLoader: seven of them are late in some step, in turns."""
LATE_RANK = planted_settings(0, "late_host", rank=1)
"""Rank 1 writes a log for 6 ms in every second step, and the three others wait for it in their collectives."""
VALUES_READ_ONE_BY_ONE = planted_settings(0, "items")
"""A metric calls `.item()` on 50 tensors in each step, and the CPU waits for the GPU each time."""
VALUES_AND_LATE_RANK = planted_settings(5, "items", "late_host")
"""The same metric, and rank 2 writes a log for 6 ms in every third step."""
PYTHON_BETWEEN_OPERATORS = planted_settings(0, "slow_python")
"""A layer loops in Python: 0.2 ms between two operators, in which the GPU runs out of kernels."""
SLOW_LAUNCHES = planted_settings(0, "slow_launches")
"""A busy CPU takes 0.15 ms more for each kernel launch than it should."""
GAPS_AND_FLOAT64 = planted_settings(11, "idle_gaps", "float64")
"""A module computes in float64, and the GPU idles before each matmul for a reason that no trace shows."""
GC_PAUSES = planted_settings(0, "gc")
"""The loop allocates so many objects that the garbage collector takes 7 ms of each step."""
RARE_GC_PAUSES = planted_settings(8, "gc")
"""The same for 6 ms in every second step of two ranks."""
LEAK = planted_settings(0, "leak")
"""A list of losses keeps 33 MB of each step alive."""
RECOMPILATION = planted_settings(0, "recompilation")
"""Each batch has another shape, and `torch.compile` takes 8 ms of each step to compile the model again."""
PROFILER_OVERHEAD = planted_settings(0, "profiler_cost")
"""The profiler itself takes 4 ms of each step."""
HEALTHY = healthy_settings(4, 3_000_000)
"""Four ranks without a fault."""
