"""Waits of a loop for its data: fetches from torch's DataLoaders, and those that a trainer reports."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from kinetoscope.hooks.loader_watch import DataLoaderWatch
from kinetoscope.pulse.layout import Phase
from kinetoscope.recording.run.counted_steps import CountedSteps
from kinetoscope.recording.run.lifecycle import RunLifecycle

T = TypeVar("T")

# Plain numbers: Python takes longer to look up a member of an enum than the pulse takes to write.
_DATA_WAIT, _EVALUATION, _OTHER = map(int, (Phase.DATA_WAIT, Phase.EVALUATION, Phase.OTHER))


class FetchWatch:
    """Record the fetches of a loop: those on its thread that are not part of another fetch.

    ``record`` makes and records a fetch that is not only counted.
    """

    def __init__(self, run: RunLifecycle, counted: CountedSteps, record: Callable[[Callable[[], Any]], Any]) -> None:
        self._run, self._counted, self._record, self._pulse = run, counted, record, run.services.pulse
        self._dataloader = run.services.marker("event/dataloader", "dataloader")
        self.watch: DataLoaderWatch = DataLoaderWatch(self.fetch)
        self.thread: int = threading.get_ident()
        """Ident of the loop's thread."""
        self.listener: Callable[[Any], object] | None = None
        """Called on the loop's thread with the iterator before each fetch. It may end a step."""
        self.has_fetched: bool = False
        self._is_fetching = False

    def fetch(self, original: Callable[[Any], T], iterator: Any) -> T:
        """Return ``original(iterator)``, the next batch, and record the wait for it if it is the loop's."""
        is_of_loop = threading.get_ident() == self.thread and not self._is_fetching
        if is_of_loop and self.listener is not None:
            writer: Any = self._pulse.writer
            if writer is not None:
                writer.expect_fetch()  # the listener may end the step
            self.listener(iterator)
        if is_of_loop and self._counted.is_on and self._pulse.writer.begin_fetch():
            return self._count(original, iterator)
        if not is_of_loop or not self._run.is_running or self._run.is_forked:
            return original(iterator)
        return self._record(partial(original, iterator))

    def _count(self, original: Callable[[Any], T], iterator: Any) -> T:
        """Make a fetch that only the pulse needs."""
        self.has_fetched = self._is_fetching = True
        self._pulse.is_between_loops = is_there = False
        try:
            item = original(iterator)
            is_there = True
            return item
        finally:
            self._is_fetching = False
            self._pulse.is_between_loops = not is_there
            self._pulse.writer.end_fetch(is_there)

    def wait(self, fetch: Callable[[], T]) -> T:
        """Return ``fetch()``, recorded as a span."""
        token = self._dataloader.begin()
        before = self._pulse.enter(_DATA_WAIT)
        if before == _EVALUATION:  # a fetch of an evaluation counts as evaluation
            self._pulse.enter(before)
        elif before != _OTHER:  # a step of an optimizer has raised
            before = _OTHER
        self._is_fetching = True
        try:
            return fetch()
        except StopIteration:
            self._dataloader.abandon(token)
            raise
        finally:
            self._is_fetching = False
            self._pulse.enter(before)
            self._dataloader.end(token)
