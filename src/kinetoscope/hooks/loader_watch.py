"""Calls around the fetches of torch's DataLoaders, which have no hook."""

from collections.abc import Callable
from typing import Any

from kinetoscope.hooks.patching import ReplacedMethod
from kinetoscope.hooks.private_names import loader_iterator

Around = Callable[[Callable[[Any], Any], Any], Any]
"""Called with a function that fetches the next batch of an iterator, and with the iterator; returns the batch."""


class DataLoaderWatch:
    """While installed, calls ``around(fetch, iterator)`` in place of each fetch of a torch DataLoader, on any thread.

    It replaces the iterators' ``__next__``. If torch is not loaded, nothing happens. Several watches may be installed
    and removed in any order.
    """

    def __init__(self, around: Around) -> None:
        self._around = around
        self._replaced: ReplacedMethod | None = None
        self._is_removed = False

    def install(self) -> None:
        """Start to watch, if torch's DataLoader is loaded and not watched yet."""
        if self._replaced is None and not self._is_removed and (kind := loader_iterator.find()) is not None:
            if "__next__" in vars(kind):
                self._replaced = ReplacedMethod(kind, "__next__", self._around)
            else:
                loader_iterator.warn_missing(f"{loader_iterator} does not define __next__")

    def remove(self) -> None:
        """Stop watching, permanently."""
        self._is_removed = True
        if self._replaced is not None:
            self._replaced.restore()
