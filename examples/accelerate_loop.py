"""Trains a small network in a loop with accelerate, and profiles it. Needs `pip install accelerate`.

    python examples/accelerate_loop.py --out runs/accelerate

The lines with `profiler` in them are all that profiling needs.
"""

import argparse

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader, TensorDataset

from kinetoscope.integrations.accelerate import ProfileKwargs


def make_loader(num_batches: int) -> DataLoader:
    """Points in the plane; their label is whether they lie within the unit circle."""
    points = torch.randn(num_batches * 32, 2)
    return DataLoader(TensorDataset(points, (points.norm(dim=1) < 1).long()), batch_size=32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="runs/accelerate", help="the run's folder (default: %(default)s)")
    out = parser.parse_args().out
    torch.manual_seed(0)
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    model, optimizer, loader, held_out = accelerator.prepare(model, optimizer, make_loader(40), make_loader(5))
    with accelerator.profile(ProfileKwargs(out, diagnose=True, overwrite=True, report=True)) as profiler:
        for _ in range(2):
            for points, labels in profiler.batches(loader):
                loss = torch.nn.functional.cross_entropy(model(points), labels)
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            with profiler.eval(), torch.no_grad():
                for points, _ in profiler.batches(held_out):
                    model(points)
    print(f"Loss {loss.item():.3f}. What to change first, and where: {out}/report.html")


if __name__ == "__main__":
    main()
