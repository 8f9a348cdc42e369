"""torch: where Kineto may save without Python's lock. Finished results flow in, yes or no flows out.

libtorch promises no interface for it. So it is done with the versions of torch that were tried, and in them only where
the module in C++ finds that it was compiled as torch was; elsewhere torch saves by itself.
"""

import logging
from functools import cache
from pathlib import Path
from typing import Any

import torch

from kinetoscope.torch.torch_version import VERSION

LIBRARY = str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so")
_TRIED = frozenset({(2, 9), (2, 12), (2, 13), (2, 14), (2, 15)})
"""The versions of torch with which it was tried; before 2.9 torch does not tell where its results are."""

_log = logging.getLogger("kinetoscope")


def saves_without_lock(kineto_results: Any) -> bool:
    """Whether Kineto can save these results while other threads run Python."""
    if VERSION not in _TRIED:
        _say_who_saves(f"this version of Kinetoscope was not tried with torch {torch.__version__}")
        return False
    try:
        from kinetoscope import _kineto_save
    except ImportError:
        return False
    if not _kineto_save.can_save(kineto_results, LIBRARY):
        _say_who_saves(f"Kinetoscope was compiled otherwise than torch {torch.__version__}")
        return False
    return True


@cache
def _say_who_saves(reason: str) -> None:
    _log.info("torch saves its traces by itself, and training waits for it meanwhile: %s.", reason)
