"""A placeholder for torchvision: the names that `import composer` needs."""

from torchvision import datasets, models, ops, transforms, utils

__all__ = ["datasets", "models", "ops", "transforms", "utils"]
