"""Trains a small network on handwritten digits, and profiles it.

    torchrun --standalone --nproc-per-node 2 examples/train_digits.py     # two ranks, one merged trace
    python examples/train_digits.py                                      # one rank

The data are scikit-learn's bundled digits: 1,797 real images of 8 x 8 pixels, no download. The lines with
`profiler` in them are all that profiling needs.
"""

import argparse
import gzip
import json
import os
from collections import defaultdict
from pathlib import Path

import torch
import torch.distributed as dist
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import kinetoscope


class DigitNet(nn.Module):
    """Two convolutions and a classifier. Library code that marks its own parts needs no profiler at hand."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)
        )
        self.classifier = nn.Linear(64 * 4 * 4, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        with kinetoscope.marker("features"):
            features = self.features(images)
        return self.classifier(features.flatten(1))


def make_loader(batch_size: int) -> DataLoader:
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    dataset = TensorDataset(images, torch.tensor(digits.target))
    sampler = DistributedSampler(dataset) if dist.is_initialized() else None
    return DataLoader(dataset, batch_size, sampler=sampler, shuffle=sampler is None, num_workers=1, drop_last=True)


def train(
    profiler: kinetoscope.Profiler, model: nn.Module, loader: DataLoader, epochs: int, progress: Progress
) -> float:
    forward, compute_loss = profiler.marker("forward"), profiler.marker("loss")
    backward, optimize = profiler.marker("backward"), profiler.marker("optimizer")
    barrier, loss_value = profiler.marker("barrier"), profiler.marker("training loss")
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    task = progress.add_task("training", total=epochs * len(loader))
    loss = torch.tensor(0.0)
    for _ in range(epochs):
        for images, labels in profiler.batches(loader):
            with forward, torch.profiler.record_function("model"):
                output = model(images)
            with compute_loss, torch.profiler.record_function("cross_entropy"):
                loss = nn.functional.cross_entropy(output, labels)
            with backward, torch.profiler.record_function("autograd"):
                loss.backward()
            with optimize, torch.profiler.record_function("adam"):
                optimizer.step()
                optimizer.zero_grad()
            loss_value.counter(loss.item())
            if dist.is_initialized():
                with barrier, torch.profiler.record_function("wait for the other rank"):
                    dist.barrier()
            progress.advance(task)
    return loss.item()


def summarize(traces: Path) -> Table:
    """Time per span name and rank, over all recorded batches."""
    times: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for path in sorted(traces.glob("ep*.json.gz")):
        trace = json.loads(gzip.decompress(path.read_bytes()))
        for event in trace["traceEvents"]:
            if event["ph"] == "X" and event.get("cat") in ("marker", "batch", "dataloader"):
                times[event["name"]][trace["kinetoscope"]["rank"]].append(event["dur"] / 1000)
    table = Table(title="What was recorded: milliseconds a batch, mean")
    ranks = sorted({rank for of_rank in times.values() for rank in of_rank})
    table.add_column("span")
    for rank in ranks:
        table.add_column(f"rank {rank}", justify="right")
        table.add_column("share", justify="right")
    steps = {rank: sum(times["event/batch"][rank]) + sum(times["event/dataloader"][rank]) for rank in ranks}
    for name, of_rank in sorted(times.items(), key=lambda item: -sum(map(sum, item[1].values()))):
        row = [name + {"event/batch": " (the step)", "event/dataloader": " (data wait)"}.get(name, "")]
        for rank in ranks:
            values = of_rank[rank]
            mean = f"{sum(values) / len(values):.2f}" if values else "-"
            row += [mean, f"{sum(values) / steps[rank]:.0%}"]
        table.add_row(*row)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="runs/digits", help="the run's folder (default: %(default)s)")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--with-stack", action="store_true", help="record Python stacks as well")
    arguments = parser.parse_args()

    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(1)
    is_first = not dist.is_initialized() or dist.get_rank() == 0
    console = Console(quiet=not is_first)
    loader = make_loader(arguments.batch_size)
    model: nn.Module = DistributedDataParallel(DigitNet()) if dist.is_initialized() else DigitNet()

    schedule = kinetoscope.cyclic_schedule(skip_first=1, warmup=1, active=10)
    with kinetoscope.profile(
        arguments.out,
        schedule=schedule,
        with_stack=arguments.with_stack,
        diagnose=True,
        overwrite=True,
        report=True,
    ) as profiler:
        with Progress(console=console) as progress:
            loss = train(profiler, model, loader, arguments.epochs, progress)

    if dist.is_initialized():
        dist.destroy_process_group()
    if is_first:
        traces = Path(arguments.out) / "traces"
        console.print(summarize(traces))
        console.print(f"Final loss {loss:.3f}. Every rank on one clock: [bold]{traces / 'merged_trace.json.gz'}[/bold]")
        console.print("Open it at https://ui.perfetto.dev (drag the file in; it stays on your machine).")
        console.print(f"What to change first, and where: [bold]{Path(arguments.out) / 'report.html'}[/bold]")


if __name__ == "__main__":
    main()
