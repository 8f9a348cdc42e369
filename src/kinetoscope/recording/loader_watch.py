"""Watches the fetches of torch's DataLoaders, for which torch has no hook."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

Around = Callable[[Any, Callable[[], Any]], Any]
"""Called with the iterator of a loader and a function that fetches its next batch, which it returns."""


class DataLoaderWatch:
    """While installed, calls ``around(iterator, fetch)`` in place of each fetch of a torch DataLoader, on any thread.

    We replace the iterators' ``__next__``. If torch is not loaded, or its iterators are different, nothing happens.
    Several watches may be installed and removed in any order. `remove` restores the method, unless other code has
    replaced it since; then ours stays beneath theirs and only passes the call on.
    """

    def __init__(self, around: Around) -> None:
        self._around: Around | None = around
        self._kind: Any = None
        self._original: Any = None

    def install(self) -> None:
        """Begins to watch, if torch's DataLoader is loaded and not watched yet."""
        kind: Any = getattr(sys.modules.get("torch.utils.data.dataloader"), "_BaseDataLoaderIter", None)
        if self._kind is not None or self._around is None or "__next__" not in getattr(kind, "__dict__", ()):
            return
        self._kind, self._original = kind, kind.__next__

        def fetch_watched(iterator: Any) -> Any:
            around = self._around
            fetch = partial(self._original, iterator)
            return fetch() if around is None else around(iterator, fetch)

        fetch_watched.watch = self  # pyright: ignore[reportFunctionMemberAccess]
        kind.__next__ = fetch_watched

    def remove(self) -> None:
        """Ends watching, for good."""
        self._around = None
        while self._kind is not None and (top := _watch_of(self._kind.__next__)) is not None and top._around is None:
            self._kind.__next__ = top._original


def _watch_of(method: Any) -> DataLoaderWatch | None:
    """The watch whose method this is; None for torch's, and for other code's."""
    watch = getattr(method, "watch", None)
    return watch if isinstance(watch, DataLoaderWatch) else None
