"""A suite that needs torch, which computes on one thread."""

import importlib.util
from collections.abc import Callable

from benchmarks.suite import SuiteResult


def on_one_thread(suite: str, title: str, measured: Callable[[], SuiteResult]) -> SuiteResult:
    """Return the result of ``measured()`` with torch on one thread; no measures where torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        return SuiteResult(suite=suite, title=title, measures=[], notes=["torch is not installed: left out."])
    import torch

    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return measured()
    finally:
        torch.set_num_threads(num_threads)
