"""Trains a small network with Transformers' Trainer, and profiles it. Needs `pip install transformers accelerate`.

    python examples/transformers_trainer.py --out runs/transformers

One line is all that profiling needs: the callback. The network is no language model, so nothing is downloaded.
"""

import argparse
import tempfile

import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

from kinetoscope.integrations.transformers import KinetoscopeCallback


class CircleNet(torch.nn.Module):
    """Says whether a point lies within the unit circle."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(torch.nn.Linear(2, 64), torch.nn.ReLU(), torch.nn.Linear(64, 2))

    def forward(self, points: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.layers(points)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


class Points(Dataset):
    """Points in the plane; their label is whether they lie within the unit circle."""

    def __init__(self, num_points: int) -> None:
        self.points = torch.randn(num_points, 2)

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, place: int) -> dict[str, torch.Tensor]:
        return {"points": self.points[place], "labels": (self.points[place].norm() < 1).long()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="runs/transformers", help="the run's folder (default: %(default)s)")
    out = parser.parse_args().out
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            folder,
            num_train_epochs=2,
            per_device_train_batch_size=32,
            eval_strategy="epoch",
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
            report_to=[],
        )
        trainer = Trainer(
            CircleNet(),
            settings,
            train_dataset=Points(40 * 32),
            eval_dataset=Points(5 * 32),
            callbacks=[KinetoscopeCallback(out, diagnose=True, overwrite=True, report=True)],
        )
        trainer.train()
    print(f"Trained {trainer.state.global_step} steps. What to change first, and where: {out}/report.html")


if __name__ == "__main__":
    main()
