"""torch: which torch this is. Nothing flows in; a version that compares flows out."""

import torch

VERSION = tuple(int(part) for part in torch.__version__.split(".")[:2])
"""Major and minor, such as (2, 13)."""
