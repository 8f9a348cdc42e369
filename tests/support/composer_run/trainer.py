"""tests: a small model, its data, and a Trainer for them.

Imported only where Composer is installed: see `tests/compat/composer/conftest.py`.
"""

from typing import Any

import torch
from composer import Trainer
from composer.models import ComposerClassifier
from torch.utils.data import DataLoader, TensorDataset

BATCH_SIZE = 8


def make_batches(num_batches: int) -> DataLoader:
    """Random points in two classes, the same ones every time."""
    generator = torch.Generator().manual_seed(7)
    num_samples = num_batches * BATCH_SIZE
    points = torch.randn(num_samples, 8, generator=generator)
    return DataLoader(TensorDataset(points, (points.sum(1) > 0).long()), batch_size=BATCH_SIZE)


def make_model(net: torch.nn.Module | None = None) -> ComposerClassifier:
    net = net or torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    return ComposerClassifier(net, num_classes=2)


def make_trainer(profiler: Any, *, num_batches: int = 8, duration: str = "1ep", **settings: Any) -> Trainer:
    """Return a Trainer with ``num_batches`` per epoch, which writes its traces below the folder ``run``."""
    options = {"run_name": "run", "device": "cpu", "progress_bar": False, "train_dataloader": make_batches(num_batches)}
    return Trainer(model=make_model(), max_duration=duration, profiler=profiler, **options | settings)
