"""torch: CUDA graphs and CUPTI. Before CUDA 12.6 Kineto must not tear CUPTI down beside CUDA graphs: it would crash."""

import os
import sys

import torch


def enabled() -> bool:
    """Whether the compiler of this process turns code into CUDA graphs; False if it was not even imported."""
    config = sys.modules.get("torch._inductor.config")
    return config is not None and bool(config.triton.cudagraphs)


def keep_cupti_alive() -> bool:
    """Tells Kineto, by its environment variables, to keep CUPTI; False where this CUDA does not need it."""
    version = torch.version.cuda
    if version is None or tuple(map(int, version.split(".")[:2])) >= (12, 6):
        return False
    os.environ["DISABLE_CUPTI_LAZY_REINIT"] = "1"
    os.environ["TEARDOWN_CUPTI"] = "0"
    return True
