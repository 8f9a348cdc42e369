"""recording: the plain training loop. It tells the profiler where the run is, as a trainer's engine would."""

import contextlib
from collections.abc import Iterable, Iterator
from datetime import timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

from kinetoscope.errors import ProfilerStateError
from kinetoscope.recording.marker import Marker
from kinetoscope.training.event import Event

if TYPE_CHECKING:
    from kinetoscope.recording.profiler import Profiler

T = TypeVar("T")


class _OpenSpan:
    """A span of the loop that is begun in one call and ended, or found to be none, in a later one."""

    __slots__ = ("_marker", "_token")

    def __init__(self, marker: Marker) -> None:
        self._marker = marker
        self._token: Any = None

    def begin(self) -> None:
        self._token = self._marker.begin()

    def end(self) -> None:
        token, self._token = self._token, None
        self._marker.end(token)

    def abandon(self) -> None:
        token, self._token = self._token, None
        self._marker.abandon(token)


class Loop:
    """Advances the timestamp of a run that has no trainer, fires its events, and records `event/epoch`,
    `event/dataloader` and `event/batch` spans. Drives `Profiler.batches`, `Profiler.step` and `Profiler.epoch`."""

    def __init__(self, profiler: "Profiler") -> None:
        self._profiler = profiler
        self._epoch = _OpenSpan(profiler.marker("event/epoch", categories=("epoch",)))
        self._dataloader = _OpenSpan(profiler.marker("event/dataloader", categories=("dataloader",)))
        self._batch = _OpenSpan(profiler.marker("event/batch", categories=("batch",)))
        # Which epoch is going on: a generator that is closed late must not end somebody else's.
        self._current: object = None
        self._batch_began = 0.0

    def batches(self, iterable: Iterable[T], length: int | None) -> Iterator[T]:
        if self._profiler.is_forked:
            yield from iterable
            return
        epoch = self._begin_epoch(_length(iterable) if length is None else length)
        completed = False
        try:
            iterator = iter(iterable)
            while (item := self._next(iterator)) is not None:
                self._begin_batch()
                yield item[0]
                del item  # not ours to keep alive while the next batch is loaded
                self._end_batch(0, 0)
            completed = True
        except GeneratorExit:
            # The loop was left by `break`, so its last batch is done, and so is the epoch. (Or by an exception: Python
            # closes the generator in the same way, and the failed batch is counted. The Profiler's exit follows.)
            if self._current is epoch:
                self._end_batch(0, 0)
                completed = True
            raise
        finally:
            self._end_epoch(epoch, completed)

    def step(self, samples: int, tokens: int) -> None:
        if self._profiler.is_forked:
            return
        if self._current is None:
            self._begin_epoch(None)
            self._begin_batch()
        self._end_batch(samples, tokens)
        self._begin_batch()

    @contextlib.contextmanager
    def epoch(self, length: int | None) -> Iterator[None]:
        if self._profiler.is_forked:
            yield
            return
        epoch = self._begin_epoch(length)
        self._begin_batch()
        completed = False
        try:
            yield
            completed = True
        finally:
            self._batch.abandon()  # the stretch after the last step is no batch
            self._end_epoch(epoch, completed)

    def end(self, clean: bool) -> None:
        """The run ends. A clean end completes the epoch of a loop that uses `step` without `epoch`."""
        if clean and self._current is not None:
            self._batch.abandon()
            self._end_epoch(self._current, completed=True)

    def _next(self, iterator: Iterator[T]) -> tuple[T] | None:
        """The next batch, alone in a tuple; None at the end."""
        self._profiler.fire(Event.BEFORE_DATALOADER)
        self._dataloader.begin()
        try:
            item = (next(iterator),)
        except StopIteration:
            self._dataloader.abandon()
            return None
        except BaseException:
            self._dataloader.end()
            raise
        self._dataloader.end()
        self._profiler.fire(Event.AFTER_DATALOADER)
        return item

    def _begin_batch(self) -> None:
        self._batch_began = monotonic()
        self._profiler.fire(Event.BATCH_START)
        self._batch.begin()

    def _end_batch(self, samples: int, tokens: int) -> None:
        self._batch.end()
        if self._profiler.is_running:
            state = self._profiler.state
            duration = timedelta(seconds=monotonic() - self._batch_began)
            state.timestamp = state.timestamp.to_next_batch(samples, tokens, duration)
            self._profiler.batch_ended()

    def _begin_epoch(self, length: int | None) -> object:
        if not self._profiler.is_running:
            raise ProfilerStateError("This Profiler is not running. Put the loop inside `with profiler:`.")
        if self._current is not None:
            raise ProfilerStateError("An epoch is going on already, and epochs do not nest. End the first one.")
        self._current = epoch = object()
        if length is not None:
            self._profiler.state.dataloader_len = length
        self._profiler.epoch_started()
        self._epoch.begin()
        return epoch

    def _end_epoch(self, epoch: object, completed: bool) -> None:
        if self._current is not epoch:
            return
        self._current = None
        self._epoch.end()
        if completed and self._profiler.is_running:
            self._profiler.fire(Event.EPOCH_END)
            state = self._profiler.state
            state.timestamp = state.timestamp.to_next_epoch()


def _length(iterable: Iterable[Any]) -> int | None:
    try:
        return len(iterable)  # pyright: ignore[reportArgumentType]
    except TypeError:
        return None
