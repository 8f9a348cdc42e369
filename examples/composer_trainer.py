"""Trains a small network with Composer's Trainer, and profiles it. Needs Composer: `make test-composer` has it.

    python examples/composer_trainer.py --out runs/composer

Two lines are all that profiling needs: the import, and `profiler=` for the Trainer. What it leaves:

    runs/composer/traces/merged_trace.json     markers, torch's operators and the machine's counters, on one clock
    runs/composer/torch_traces/                torch's own traces

Open the merged trace in https://ui.perfetto.dev.
"""

import argparse

import torch
from composer import Trainer
from composer.models import ComposerClassifier
from torch.utils.data import DataLoader, TensorDataset

from kinetoscope.composer import JSONTraceHandler, Profiler, cyclic_schedule

NUM_BATCHES, BATCH_SIZE = 40, 32


def make_batches() -> DataLoader:
    """Points in the plane; their class is whether they lie within the unit circle."""
    points = torch.randn(NUM_BATCHES * BATCH_SIZE, 2, generator=torch.Generator().manual_seed(0))
    return DataLoader(TensorDataset(points, (points.norm(dim=1) < 1).long()), batch_size=BATCH_SIZE)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="runs/composer", help="the run's folder")
    out = parser.parse_args().out
    profiler = Profiler(
        schedule=cyclic_schedule(skip_first=2, warmup=1, active=4),
        trace_handlers=[JSONTraceHandler(folder=f"{out}/traces", overwrite=True)],
        sys_prof_memory=True,
        sys_prof_stats_thread_interval_seconds=0.05,
        torch_prof_folder=f"{out}/torch_traces",
        torch_prof_overwrite=True,
    )
    network = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
    trainer = Trainer(
        model=ComposerClassifier(network, num_classes=2),
        train_dataloader=make_batches(),
        max_duration="1ep",
        device="cpu",
        device_train_microbatch_size=BATCH_SIZE // 2,
        progress_bar=False,
        profiler=profiler,
    )
    trainer.fit()
    trainer.close()
    print(f"Trained {trainer.state.timestamp.batch.value} batches. Open {out}/traces/merged_trace.json")


if __name__ == "__main__":
    main()
