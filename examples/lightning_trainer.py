"""Trains a small network with Lightning's Trainer, and profiles it. Needs `pip install lightning`.

    python examples/lightning_trainer.py --out runs/lightning

One line is all that profiling needs: `profiler=` for the Trainer.
"""

import argparse

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

from kinetoscope.integrations.lightning import KinetoscopeProfiler


class CircleNet(lightning.LightningModule):
    """Says whether a point lies within the unit circle."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))

    def _loss(self, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        points, labels = batch
        return torch.nn.functional.cross_entropy(self.layers(points), labels)

    def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], number: int) -> torch.Tensor:
        return self._loss(batch)

    def validation_step(self, batch: tuple[torch.Tensor, torch.Tensor], number: int) -> None:
        self.log("held out", self._loss(batch))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def make_loader(num_batches: int) -> DataLoader:
    points = torch.randn(num_batches * 32, 2)
    return DataLoader(TensorDataset(points, (points.norm(dim=1) < 1).long()), batch_size=32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="runs/lightning", help="the run's folder (default: %(default)s)")
    arguments = parser.parse_args()
    lightning.seed_everything(0, verbose=False)
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        profiler=KinetoscopeProfiler(arguments.out, diagnose=True, overwrite=True, report=True),
    )
    trainer.fit(CircleNet(), make_loader(40), make_loader(5))
    print(trainer.profiler.summary())


if __name__ == "__main__":
    main()
