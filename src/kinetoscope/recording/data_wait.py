"""recording: the wait for a DataLoader in a loop that calls `step`. Fetches of torch's iterators flow to the loop."""

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

Fetch = Callable[[], Any]


class DataLoaderWatch:
    """While installed, calls ``around(fetch)`` in place of each fetch of a torch DataLoader, on whichever thread.

    Torch has no hook for this, so the iterators' ``__next__`` is replaced. Where torch is not loaded, or its iterators
    look different, nothing happens. `remove` leaves the method as it was, unless somebody else has replaced it since:
    then ours stays beneath theirs and does nothing more.
    """

    def __init__(self, around: Callable[[Fetch], Any]) -> None:
        self._around: Callable[[Fetch], Any] | None = around
        self._kind: Any = None
        self._original: Any = None
        self._ours: Any = None

    def install(self) -> None:
        """Begins to watch, if torch's DataLoader is loaded by now and is not watched yet."""
        kind: Any = getattr(sys.modules.get("torch.utils.data.dataloader"), "_BaseDataLoaderIter", None)
        if self._kind is not None or self._around is None or "__next__" not in getattr(kind, "__dict__", ()):
            return
        self._kind, self._original = kind, kind.__next__

        def fetch_watched(iterator: Any) -> Any:
            around = self._around
            return self._original(iterator) if around is None else around(partial(self._original, iterator))

        self._ours = kind.__next__ = fetch_watched

    def remove(self) -> None:
        """Ends watching, for good."""
        self._around = None
        if self._kind is not None and self._kind.__next__ is self._ours:
            self._kind.__next__ = self._original
