"""Stands in for torchvision: names that `import composer` looks for."""

from torchvision import datasets, models, ops, transforms, utils

__all__ = ["datasets", "models", "ops", "transforms", "utils"]
