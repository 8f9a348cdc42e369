"""Write the traces of `tests/data/hta` and HTA's numbers of them: ``python -m support.hta_comparison`` in tests.

Only for a new version of HTA, or other traces: the numbers are committed, and tests compare ours with them.
"""

import gzip
import json
import tempfile
from pathlib import Path

from support.hta_comparison.hta_numbers import hta_numbers
from support.hta_comparison.reading import without_miscounts
from trainsim import Fault, Settings, simulate

FOLDER = Path(__file__).parents[2] / "data" / "hta"
RUNS = {
    "data_parallel": Settings(
        num_steps=4, has_sync_events=True, reads_loss="each step", faults=(Fault(kind="slow_network", cost_ns=400_000),)
    ),
    "experts": Settings(seed=1, num_ranks=4, num_steps=3, layout="experts", has_sequence=False),
    "pipeline": Settings(seed=2, num_steps=3, layout="pipeline", step_ns=1_000_000),
    "graph": Settings(seed=3, num_steps=4, has_cuda_graph=True, has_memory=False),
}


def main() -> None:
    """Write a trace for each of `RUNS`, the last rank's, and the numbers of all."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    numbers = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, settings in RUNS.items():
            written = simulate(settings).write(Path(scratch) / name)[-1]
            trace = FOLDER / f"{name}.json.gz"
            trace.write_bytes(gzip.compress(written.read_bytes(), mtime=0))
            numbers[name] = hta_numbers(without_miscounts(trace, Path(scratch)))
    (FOLDER / "numbers.json").write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
