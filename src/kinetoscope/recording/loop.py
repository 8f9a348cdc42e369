"""The plain training loop: tells the run where training is, as a trainer's engine does elsewhere."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from enum import Enum
from functools import partial
from typing import Any, Generic, TypeVar, cast

from kinetoscope.errors import ProfilerStateError
from kinetoscope.formats.own_names import BATCH
from kinetoscope.hooks.loader_watch import DataLoaderWatch
from kinetoscope.hooks.phase_hooks import PhaseHooks
from kinetoscope.pulse.layout import Phase
from kinetoscope.recording.batch import ANNOUNCED, EXPECTED, NONE, UNANNOUNCED, Batch, OpenSpan
from kinetoscope.recording.run import Run
from kinetoscope.training.event import Event
from kinetoscope.training.state import State

T = TypeVar("T")


def _count_nothing(samples: int, tokens: int) -> bool:
    """What ends no step: where none is only counted."""
    del samples, tokens
    return False


# Plain numbers: an enum's member takes Python longer to look up than the pulse takes to write.
_DATA_WAIT, _EVALUATION, _OTHER = map(int, (Phase.DATA_WAIT, Phase.EVALUATION, Phase.OTHER))


_evaluation: ContextVar[object] = ContextVar("kinetoscope_evaluation", default=None)
"""The evaluation in which the caller is, or last was: each thread and each task of asyncio has its own."""


class Batches(Generic[T]):
    """What `Profiler.batches` returns. Iterating over it is an epoch or an evaluation. It has the iterable's length.

    Each ``for`` loop gets its own iterator, so ``break`` ends the epoch even if other code still holds this object.
    """

    def __init__(self, loop: "Loop", iterable: Iterable[T], length: int | None) -> None:
        self._loop = loop
        self._iterable = iterable
        self._length = length
        self._own: Iterator[T] | None = None

    def __iter__(self) -> Iterator[T]:
        return self._own or self._loop.iterate(self._iterable, self._length)

    def __next__(self) -> T:
        if self._own is None:
            self._own = self._loop.iterate(self._iterable, self._length)
        return next(self._own)

    def __len__(self) -> int:
        if self._length is not None:
            return self._length
        return len(self._iterable)  # pyright: ignore[reportArgumentType] - raises TypeError if it has no length


class _Iterator(Generic[T]):
    """An iterator that begins at the first item, so that starting a loader's workers is a part of waiting for it."""

    __slots__ = ("_iterable", "_own")

    def __init__(self, iterable: Iterable[T]) -> None:
        self._iterable, self._own = iterable, cast("Iterator[T] | None", None)

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._own is None:
            self._own = iter(self._iterable)
        return next(self._own)


class _Epoch:
    """The current epoch. ``iterable`` is what a loop over `batches` takes its batches from, None in other loops.
    ``is_implied``: it began because the loop called `step`.
    """

    __slots__ = ("is_implied", "iterable")

    def __init__(self, is_implied: bool) -> None:
        self.is_implied = is_implied
        self.iterable: object = None


class _EpochEnd(Enum):
    """How an epoch ended."""

    COMPLETE = 1
    LEFT = 2  # by `break`
    FAILED = 3


class Loop:
    """Advances the timestamp of a run that has no trainer, fires its events, and records `event/epoch`,
    `event/dataloader`, `event/batch` and, for evaluations, `event/eval` and `event/eval_batch` spans.

    The `TrainingLoop` of ``run``, behind `Profiler.batches`, `Profiler.epoch`, `Profiler.eval` and the `Driver`. Its
    ``state`` is the run's, which this advances.
    """

    def __init__(self, run: Run, state: State) -> None:
        self._run, self._state = run, state
        run.loop, run.notes_phases = self, True
        self._epoch_span = OpenSpan(run.marker("event/epoch", "epoch"), run.lasting)
        self._dataloader = run.marker("event/dataloader", "dataloader")
        self._batch = Batch(run.marker(BATCH, "batch"), run.clock.monotonic_ns)
        self._eval = run.marker("event/eval", "eval")
        self._eval_batch = run.marker("event/eval_batch", "eval")
        self._watch = DataLoaderWatch(self.fetch)
        self.phases: PhaseHooks = PhaseHooks(run.pulse)
        self.fetch_listener: Callable[[Any], object] | None = None
        """Called on the loop's thread with an iterator before each fetch. It may end a step."""
        self._thread = threading.get_ident()
        # The current epoch. A generator that is closed late must not end a later epoch.
        self._current: _Epoch | None = None
        # How the last epoch ended. If it is not complete, a window that is saved now still belongs to it.
        self._last_end = _EpochEnd.COMPLETE
        self._evaluations: set[object] = set()
        """Those that are open; another thread or task than the one that trains may have opened them."""
        self._is_fetching = self._has_fetched = False
        self._is_counting = False
        """Whether the pulse counts steps that need nothing else."""
        self.count_step: Callable[[int, int], bool] = _count_nothing
        """Ends a step of so many samples and tokens in a loop that calls `step`, which is quicker; returns False if
        `step` has to be called."""

    # -- the run's beginning and end --------------------------------------------------------------------------

    def start(self) -> None:
        """Begins the run. Raises what a source or handler raises while it sets up, and `ProfilerStateError`."""
        run = self._run
        if not run.can_begin():
            return
        try:
            run.callbacks.fire(Event.INIT, setup=True)
            run.begin()
            run.next_action()
            run.callbacks.fire(Event.FIT_START, setup=True)
            run.apply_action()
        except BaseException:
            run.close_failed_setup()
            raise
        self._begin()

    def _begin(self) -> None:
        """Begins the first batch, in case the loop turns out to call `step`."""
        self._thread = threading.get_ident()
        self._epoch_span.begin()
        self._batch.begin(EXPECTED)
        self._watch.install()
        self.phases.install()
        self._run.pulse.begin_step()

    def follow_thread(self) -> None:
        """Notes that the calling thread trains: it may be another than the one that began the run."""
        if threading.get_ident() != self._thread:
            self._thread = threading.get_ident()
            self._run.pulse.follow_thread()
            self.phases.follow_thread()

    def end(self, clean: bool) -> None:
        """Ends the loop. A clean end completes the epoch of a loop that uses `step` without `epoch`."""
        self._watch.remove()
        self.phases.remove()
        self._catch_up()
        if self._current is None:
            self._epoch_span.abandon()
        if clean or not self._batch.has_begun or self._current is None:
            self._batch.forget()
        if clean and self._current is not None:
            self._tell(Event.EPOCH_END)
            self._current = None
            self._epoch_span.end()
        self._run.callbacks.fire(Event.FIT_END)

    def close_handlers(self) -> None:
        """While the run closes: closes handlers and sources, which belong to this loop."""
        self._run.close_callbacks()

    def close_abandoned(self) -> None:
        """Closes a run whose profiler was not closed."""
        self._run.close(clean=False)

    # -- loops over batches -----------------------------------------------------------------------------------

    def iterate(self, iterable: Iterable[T], length: int | None) -> Iterator[T]:
        """Yields the items of ``iterable`` as the batches of an epoch; as an evaluation within one of its batches."""
        self._catch_up()
        if self._is_over():
            yield from iterable
        elif self._is_evaluation(iterable):
            yield from self._evaluate(iterable)
        else:
            yield from self._train(iterable, _length(iterable) if length is None else length)

    def _is_evaluation(self, iterable: object) -> bool:
        """Whether this loop is inside an evaluation or a batch.

        A loop over the iterable of the current epoch is the next epoch: the loop before was left, and some code still
        holds its iterator.
        """
        epoch = self._current
        is_within = self._is_in_evaluation()
        if is_within or epoch is None or not self._batch.has_begun:
            return is_within
        if epoch.iterable is iterable:
            self._end_batch()
            self._end_epoch(epoch, _EpochEnd.LEFT)
        return epoch.iterable is not iterable

    def _train(self, iterable: Iterable[T], length: int | None) -> Iterator[T]:
        self._batch.forget()
        if self._current is not None and self._current.is_implied:
            self._end_epoch(self._current, _EpochEnd.LEFT)
        is_ours = self._current is None  # else it belongs to `Profiler.epoch`, which ends it
        epoch = self._current or self._begin_epoch(length)
        epoch.iterable = iterable
        end = _EpochEnd.FAILED
        try:
            iterator = _Iterator(iterable)
            while (item := self._fetch_next(iterator)) is not None:
                self._begin_batch()
                yield item[0]
                del item  # do not keep it alive while the next batch is loaded
                if self._current is epoch:
                    self._end_batch()
                elif self._current is None:  # we took the loop for left, but it goes on
                    epoch, is_ours = self._begin_epoch(length), True
            end = _EpochEnd.COMPLETE
        except GeneratorExit:
            # `break` left the loop, so its last batch and the epoch are complete. After an exception, Python closes the
            # generator in the same way, and the failed batch is counted; the Profiler's exit follows.
            end = _EpochEnd.LEFT
            raise
        finally:
            if end is _EpochEnd.LEFT and self._current is epoch:
                self._end_batch()
            epoch.iterable = None
            if is_ours:
                self._end_epoch(epoch, end)

    def _fetch_next(self, iterator: Iterator[T]) -> tuple[T] | None:
        """The next batch as a tuple of one; None at the end."""
        self._tell(Event.BEFORE_DATALOADER)
        try:
            item = (self._fetch(iterator.__next__),)
        except StopIteration:
            return None
        self._tell(Event.AFTER_DATALOADER)
        return item

    def _fetch(self, fetch: Callable[[], T]) -> T:
        """Waits for data, in a span."""
        token = self._dataloader.begin()
        before = self._run.pulse.enter(_DATA_WAIT)
        if before == _EVALUATION:  # all of its time is the evaluation's
            self._run.pulse.enter(before)
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
            self._run.pulse.enter(before)
            self._dataloader.end(token)

    def _begin_batch(self) -> None:
        self._tell(Event.BATCH_START)
        self._batch.begin(ANNOUNCED)
        if self._is_counting:
            self._run.pulse.writer.begin_batch()

    # -- loops that call `step` -------------------------------------------------------------------------------

    def step(self, samples: int, tokens: int, end_ns: int | None = None) -> None:
        """End a batch, now or at ``end_ns``: what came after that is in no batch.

        In a loop over `batches` the batch ends with its pass; then this adds samples and tokens.
        """
        if self._is_over() or self._is_in_evaluation():
            return
        if self._is_over_batches():
            self._batch.added = (self._batch.added[0] + samples, self._batch.added[1] + tokens)
            return
        self._catch_up()
        self.follow_thread()
        self._run.pulse.is_between_loops = False
        if self._current is None:
            self._begin_epoch(None, is_implied=True)
        if self._batch.phase is NONE:  # its begin is unknown: after a loop over batches
            self._batch.begin(UNANNOUNCED)
        if self._batch.phase is not ANNOUNCED:
            self._tell(Event.BATCH_START)
        self._end_batch(samples, tokens, end_ns)
        self._batch.begin(EXPECTED)
        self._watch.install()
        self.phases.install()

    @contextlib.contextmanager
    def epoch(self, length: int | None) -> Iterator[None]:
        """A context around an epoch, whose batches are counted by `step` or by a loop over `batches`."""
        self._catch_up()
        if self._is_over() or self._current is not None:
            if self._current is not None:
                self._run.report("An epoch was begun inside an epoch; epochs do not nest, so the inner one is ignored.")
            yield
            return
        self._batch.forget()
        epoch = self._begin_epoch(length)
        self._batch.begin(EXPECTED)
        end = _EpochEnd.FAILED
        try:
            yield
            end = _EpochEnd.COMPLETE
        finally:
            self._catch_up()
            self._batch.forget()  # the time after the last step is no batch
            self._end_epoch(epoch, end)

    def fetch(self, original: Callable[[Any], T], iterator: Any) -> T:
        """Return ``original(iterator)``, the next batch, and record the wait for it; on other threads only the former.

        In a loop that calls `step`, the first fetch after it is the wait for the next batch.
        """
        is_ours = threading.get_ident() == self._thread and not self._is_fetching
        if is_ours and self.fetch_listener is not None:
            writer: Any = self._run.pulse.writer
            if writer is not None:
                writer.expect_fetch()  # the listener may end the step
            self.fetch_listener(iterator)
        if is_ours and self._is_counting and self._run.pulse.writer.begin_fetch():
            return self._fetch_counted(original, iterator)
        if not is_ours or self._is_in_evaluation() or not self._run.is_running or self._run.is_forked:
            return original(iterator)
        self._has_fetched = True
        fetch = partial(original, iterator)
        is_expected = self._batch.phase is EXPECTED
        return self._fetch_expected(fetch) if is_expected else self._fetch(fetch)

    def _fetch_counted(self, original: Callable[[Any], T], iterator: Any) -> T:
        """Nobody wants to be told of this fetch."""
        self._has_fetched = self._is_fetching = True
        self._run.pulse.is_between_loops = is_there = False
        try:
            item = original(iterator)
            is_there = True
            return item
        finally:
            self._is_fetching = False
            self._run.pulse.is_between_loops = not is_there
            self._run.pulse.writer.end_fetch(is_there)

    def _fetch_expected(self, fetch: Callable[[], T]) -> T:
        self._batch.forget()
        has_begun = self._current is not None  # else this is before the first `step`, which begins the epoch
        if has_begun:
            self._tell(Event.BEFORE_DATALOADER)
        self._run.pulse.is_between_loops = False
        try:
            item = self._fetch(fetch)
        except BaseException:
            self._run.pulse.is_between_loops = True
            self._batch.begin(EXPECTED)
            raise
        if has_begun:
            self._tell(Event.AFTER_DATALOADER)
            self._begin_batch()
        else:
            self._batch.begin(UNANNOUNCED)
        return item

    # -- evaluation -------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def evaluation(self) -> Iterator[None]:
        """A context around an evaluation. Between batches, only its own span is recorded."""
        self._catch_up()
        if self._is_over():
            yield
            return
        span, own = self._begin_evaluation(), object()
        is_between = not self._evaluations and threading.get_ident() == self._thread and self._is_between_batches()
        is_expected = is_between and self._batch.phase is EXPECTED
        if is_between:
            self._batch.forget()
            self._run.pause()
        self._evaluations.add(own)
        outer = _evaluation.get()
        _evaluation.set(own)
        before = self._run.pulse.enter(_EVALUATION)
        self._tell(Event.EVAL_START)
        try:
            yield
        finally:
            self._tell(Event.EVAL_END)
            self._run.pulse.enter(before)
            self._evaluations.discard(own)
            _evaluation.set(outer)
            if is_between:
                self._run.resume()
            span.end()
            if is_expected and self._batch.phase is NONE:  # else the training has gone on meanwhile
                self._batch.begin(EXPECTED)

    def _is_in_evaluation(self) -> bool:
        """Whether the caller is in an evaluation. One that another thread or task has opened is none of the loop's."""
        if not self._evaluations:
            return False
        return threading.get_ident() != self._thread or _evaluation.get() in self._evaluations

    def _begin_evaluation(self) -> OpenSpan:
        span = OpenSpan(self._eval, self._run.lasting)
        span.begin()
        return span

    def _is_between_batches(self) -> bool:
        """In a loop that calls `step`, only a fetch of a DataLoader shows that the expected batch has not begun."""
        if self._batch.phase is EXPECTED:
            return self._has_fetched or self._current is None
        return self._batch.phase is NONE

    def _evaluate(self, iterable: Iterable[T]) -> Iterator[T]:
        """Yields evaluation batches. It changes nothing in the loop, because it may be left and stay referenced."""
        is_alone, before = not self._evaluations, _OTHER
        span = self._begin_evaluation() if is_alone else None
        try:
            if is_alone:
                before = self._run.pulse.enter(_EVALUATION)
                self._tell(Event.EVAL_START)
            for item in iterable:
                self._tell(Event.EVAL_BATCH_START)
                batch = self._eval_batch.begin()
                try:
                    yield item
                finally:
                    self._eval_batch.end(batch)
                del item
                self._tell(Event.EVAL_BATCH_END)
        finally:
            if span is not None:
                self._tell(Event.EVAL_END)
                self._run.pulse.enter(before)
                span.end()

    # -- batches and epochs -----------------------------------------------------------------------------------

    def _is_over(self) -> bool:
        """Whether nothing is recorded any more, because the run is closed or this is a forked child.

        Raises `ProfilerStateError` before the run.
        """
        if self._run.is_new:
            raise ProfilerStateError("This Profiler is not running. Put the loop inside `with profiler:`.")
        return self._run.is_forked or not self._run.is_running

    def _tell(self, event: Event) -> None:
        if self._run.is_running:
            self._run.callbacks.fire(event)

    def _end_batch(self, samples: int = 0, tokens: int = 0, end_ns: int | None = None) -> None:
        added, self._batch.added = self._batch.added, (0, 0)
        samples, tokens = samples + added[0], tokens + added[1]
        if self._is_counting and self._run.pulse.writer.count_step(samples, tokens):
            self._batch.phase = NONE
            return
        self._catch_up()
        duration = self._batch.end(end_ns)
        if self._run.is_running:
            state = self._state
            state.timestamp = state.timestamp.to_next_batch(samples, tokens, duration)
            self._run.batch_ended(end_ns)
            self._count_idle_steps()

    # -- steps that need nothing else -------------------------------------------------------------------------

    def _count_idle_steps(self) -> None:
        """Lets the pulse count the next steps, if they need nothing else."""
        num_steps, state = self._run.num_idle_steps(), self._state
        calls_step, pulse = not self._is_over_batches(), self._run.pulse
        writer = pulse.writer
        if num_steps <= 0 or writer is None or type(state) is not State:
            return
        counting = pulse.count_steps(num_steps, state.timestamp, with_fetches=calls_step)
        if counting is not None:
            state.follow(counting)
            self._is_counting = True
            if calls_step:
                self.count_step = writer.count_step
            if self._run.is_asked or not self._run.is_running:  # meanwhile, on another thread, or by a signal's handler
                self._catch_up()

    def _catch_up(self) -> None:
        """Ends this: the loop is where the pulse has counted it to be."""
        if not self._is_counting:
            return
        calls_step = self.count_step is not _count_nothing
        self._is_counting, self.count_step = False, _count_nothing
        self._state.settle()
        self._run.note_length(self._state.timestamp)
        if calls_step:
            self._batch.began_ns, is_fetched = self._run.pulse.counted_batch()
            self._batch.phase = ANNOUNCED if is_fetched else EXPECTED

    def _is_over_batches(self) -> bool:
        """Whether this is a loop over `batches`."""
        return self._current is not None and self._current.iterable is not None

    # -- their epochs -----------------------------------------------------------------------------------------

    def _begin_epoch(self, length: int | None, *, is_implied: bool = False) -> _Epoch:
        """Begins an epoch. If it is the first and implied, its span is open since the run began."""
        self._catch_up()
        self.follow_thread()
        self._run.pulse.is_between_loops = False
        self._current = epoch = _Epoch(is_implied)
        state, left_at = self._state, None
        if self._last_end is not _EpochEnd.COMPLETE:
            self._last_end, left_at = _EpochEnd.COMPLETE, state.timestamp
            state.timestamp = state.timestamp.to_next_epoch()
        if length is not None:
            state.dataloader_len = length
        if not is_implied:
            self._epoch_span.abandon()
        self._run.epoch_started(left_at)
        if not self._epoch_span.is_open:
            self._epoch_span.begin()
        return epoch

    def _end_epoch(self, epoch: _Epoch, end: _EpochEnd) -> None:
        if self._current is not epoch:
            return
        self._catch_up()
        self._current = None
        self._run.pulse.is_between_loops = True
        self._epoch_span.end()
        if not self._run.is_running:
            return
        if end is not _EpochEnd.FAILED:
            self._tell(Event.EPOCH_END)
        if end is _EpochEnd.COMPLETE:
            state = self._state
            state.timestamp = state.timestamp.to_next_epoch()
        self._last_end = end


def _length(iterable: Iterable[object]) -> int | None:
    try:
        return len(iterable)  # pyright: ignore[reportArgumentType]
    except TypeError:
        return None
