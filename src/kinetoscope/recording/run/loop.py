"""Plain training loop, which reports the position of training to the run, as a trainer's engine does elsewhere."""

import contextlib
import threading
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Generic, TypeVar, cast

from kinetoscope.core.job.event import Event
from kinetoscope.core.job.state import State
from kinetoscope.errors import ProfilerStateError
from kinetoscope.formats.trace_names import BATCH
from kinetoscope.hooks.phase_hooks import PhaseHooks
from kinetoscope.pulse.layout import Phase
from kinetoscope.recording.run.batch import ANNOUNCED, EXPECTED, NONE, UNANNOUNCED, Batch, OpenSpan
from kinetoscope.recording.run.counted_steps import CountedSteps
from kinetoscope.recording.run.fetch_watch import FetchWatch
from kinetoscope.recording.run.lifecycle import RunLifecycle
from kinetoscope.recording.run.scopes import Epoch

T = TypeVar("T")


# Plain numbers: Python takes longer to look up a member of an enum than the pulse takes to write.
_EVALUATION, _OTHER = map(int, (Phase.EVALUATION, Phase.OTHER))


class Batches(Generic[T]):
    """Result of `Profiler.batches`: each iteration is an epoch or an evaluation. It has the iterable's length.

    Each ``for`` loop gets its own iterator, so ``break`` ends the epoch even if other code still references this
    object.
    """

    def __init__(self, loop: "Loop", iterable: Iterable[T], length: int | None) -> None:
        self._loop = loop
        self._iterable = iterable
        self._get_length = length
        self._iterator: Iterator[T] | None = None

    def __iter__(self) -> Iterator[T]:
        return self._iterator or self._loop.iterate(self._iterable, self._get_length)

    def __next__(self) -> T:
        if self._iterator is None:
            self._iterator = self._loop.iterate(self._iterable, self._get_length)
        return next(self._iterator)

    def __len__(self) -> int:
        if self._get_length is not None:
            return self._get_length
        return len(self._iterable)  # pyright: ignore[reportArgumentType] - raises TypeError if it has no length


class _LazyIterator(Generic[T]):
    """Iterator that starts at the first item, so that starting a loader's workers is a part of waiting for it."""

    __slots__ = ("_iterable", "_iterator")

    def __init__(self, iterable: Iterable[T]) -> None:
        self._iterable, self._iterator = iterable, cast("Iterator[T] | None", None)

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        if self._iterator is None:
            self._iterator = iter(self._iterable)
        return next(self._iterator)


class _EpochEnd(Enum):
    """End of an epoch."""

    COMPLETE = 1
    LEFT = 2  # by `break`
    FAILED = 3


class Loop:
    """Advance the timestamp of a run without a trainer's engine, fire its events, and record its spans.

    These are `event/epoch`, `event/dataloader`, `event/batch` and, for evaluations, `event/eval` and
    `event/eval_batch`. It is the `TrainingLoop` of ``run``, behind `Profiler.batches`, `Profiler.epoch`,
    `Profiler.eval` and the `Driver`. It advances ``state``, the run's state.
    """

    def __init__(self, run: RunLifecycle, state: State) -> None:
        services = run.services
        self._run, self._state, self._windows = run, state, run.windows
        self._callbacks, self._pulse, self._lasting = services.callbacks, services.pulse, services.lasting
        run.loop, run.windows.adds_phases = self, True
        self._scopes = run.windows.scopes
        self._epoch_span = OpenSpan(services.marker("event/epoch", "epoch"), self._lasting)
        self._batch = Batch(services.marker(BATCH, "batch"), services.clock.monotonic_ns)
        self._eval = services.marker("event/eval", "eval")
        self._eval_batch = services.marker("event/eval_batch", "eval")
        self.counted: CountedSteps = CountedSteps(run, state)
        self.fetches: FetchWatch = FetchWatch(run, self.counted, self._fetch_watched)
        self.phases: PhaseHooks = PhaseHooks(self._pulse)
        # How the last epoch ended. If it is not complete, a window that is saved now still belongs to it.
        self._last_end = _EpochEnd.COMPLETE

    # -- the run's beginning and end --------------------------------------------------------------------------

    def start(self) -> None:
        """Start the run.

        Raises:
            ProfilerStateError: if the run was started before, or if another run is active.
            Exception: an error of a source or handler that is set up.
        """
        run = self._run
        if not run.prepare_to_start():
            return
        try:
            self._callbacks.fire(Event.INIT, setup=True)
            run.start()
            self._windows.advance_action()
            self._callbacks.fire(Event.FIT_START, setup=True)
            self._windows.apply_action()
        except BaseException:
            run.close_failed_setup()
            raise
        self._start_first_batch()

    def _start_first_batch(self) -> None:
        """Start the first batch, in case the loop turns out to call `step`."""
        self.fetches.thread = threading.get_ident()
        self._epoch_span.begin()
        self._batch.begin(EXPECTED)
        self.fetches.watch.install()
        self.phases.install()
        self._pulse.begin_step()

    def follow_thread(self) -> None:
        """Record the calling thread as the one that trains; it may be another than the one that started the run."""
        if threading.get_ident() != self.fetches.thread:
            self.fetches.thread = threading.get_ident()
            self._pulse.set_training_thread()
            self.phases.follow_thread()

    def end(self, clean: bool) -> None:
        """End the loop. A clean end completes the epoch of a loop that uses `step` without `epoch`."""
        self.fetches.watch.remove()
        self.phases.remove()
        self._sync_counted_steps()
        if self._scopes.epoch is None:
            self._epoch_span.abandon()
        if clean or not self._batch.has_started or self._scopes.epoch is None:
            self._batch.discard()
        if clean and (epoch := self._scopes.epoch) is not None:
            self._fire(Event.EPOCH_END)
            self._scopes.remove(epoch)
            self._epoch_span.end()
        self._callbacks.fire(Event.FIT_END)

    def close_handlers(self) -> None:
        """Close handlers and sources, which belong to this loop, while the run closes."""
        self._run.close_callbacks()

    def close_abandoned(self) -> None:
        """Close a run whose profiler was not closed."""
        self._run.close(clean=False)

    # -- loops over batches -----------------------------------------------------------------------------------

    def iterate(self, iterable: Iterable[T], length: int | None) -> Iterator[T]:
        """Yield the items of ``iterable`` as the batches of an epoch; as an evaluation within one of its batches."""
        self._sync_counted_steps()
        if self._is_inactive():
            yield from iterable
        elif self._is_evaluation(iterable):
            yield from self._iterate_evaluation(iterable)
        else:
            yield from self._iterate_training(iterable, _get_length(iterable) if length is None else length)

    def _is_evaluation(self, iterable: object) -> bool:
        """Return whether this loop is inside an evaluation or a batch.

        A loop over the iterable of the current epoch is the next epoch: the loop before was left, and some code still
        references its iterator.
        """
        epoch = self._scopes.epoch
        is_within = self._is_in_evaluation()
        if is_within or epoch is None or not self._batch.has_started:
            return is_within
        if epoch.iterable is iterable:
            self._end_batch()
            self._end_epoch(epoch, _EpochEnd.LEFT)
        return epoch.iterable is not iterable

    def _iterate_training(self, iterable: Iterable[T], length: int | None) -> Iterator[T]:
        """Yield the batches of an epoch."""
        self._batch.discard()
        if self._scopes.epoch is not None and self._scopes.epoch.is_implied:
            self._end_epoch(self._scopes.epoch, _EpochEnd.LEFT)
        owns_epoch = self._scopes.epoch is None  # else it belongs to `Profiler.epoch`, which ends it
        epoch = self._scopes.epoch or self._start_epoch(length)
        epoch.iterable = iterable
        end = _EpochEnd.FAILED
        try:
            iterator = _LazyIterator(iterable)
            while (item := self._fetch_next(iterator)) is not None:
                self._start_batch()
                yield item[0]
                del item  # do not keep it alive while the next batch is loaded
                if self._scopes.epoch is epoch:
                    self._end_batch()
                elif self._scopes.epoch is None:  # the loop was assumed to be left, but continues
                    epoch, owns_epoch = self._start_epoch(length), True
            end = _EpochEnd.COMPLETE
        except GeneratorExit:
            # `break` left the loop, so its last batch and the epoch are complete. After an exception, Python closes the
            # generator in the same way, and the failed batch is counted; the Profiler's exit follows.
            end = _EpochEnd.LEFT
            raise
        finally:
            if end is _EpochEnd.LEFT and self._scopes.epoch is epoch:
                self._end_batch()
            epoch.iterable = None
            if owns_epoch:
                self._end_epoch(epoch, end)

    def _fetch_next(self, iterator: Iterator[T]) -> tuple[T] | None:
        """Return the next batch as a tuple of one; None at the end."""
        self._fire(Event.BEFORE_DATALOADER)
        try:
            item = (self.fetches.wait(iterator.__next__),)
        except StopIteration:
            return None
        self._fire(Event.AFTER_DATALOADER)
        return item

    def _start_batch(self) -> None:
        self._fire(Event.BATCH_START)
        self._batch.begin(ANNOUNCED)
        if self.counted.is_on:
            self._pulse.writer.begin_batch()

    # -- loops that call `step` -------------------------------------------------------------------------------

    def step(self, samples: int, tokens: int, end_ns: int | None = None) -> None:
        """End a batch, now or at an earlier ``end_ns``: the time after that is in no batch.

        In a loop over `batches` the batch ends with its pass; then this adds samples and tokens.
        """
        if self._is_inactive() or self._is_in_evaluation():
            return
        if self._is_in_batches_loop():
            self._batch.added_counts = (self._batch.added_counts[0] + samples, self._batch.added_counts[1] + tokens)
            return
        self._sync_counted_steps()
        self.follow_thread()
        self._pulse.is_between_loops = False
        if self._scopes.epoch is None:
            self._start_epoch(None, is_implied=True)
        if self._batch.phase is NONE:  # its start is unknown: after a loop over batches
            self._batch.begin(UNANNOUNCED)
        if self._batch.phase is not ANNOUNCED:
            self._fire(Event.BATCH_START)
        self._end_batch(samples, tokens, end_ns)
        self._batch.begin(EXPECTED)
        self.fetches.watch.install()
        self.phases.install()

    @contextlib.contextmanager
    def epoch(self, length: int | None) -> Iterator[None]:
        """Return a context for an epoch, whose batches are counted by `step` or by a loop over `batches`."""
        self._sync_counted_steps()
        if self._is_inactive() or self._scopes.epoch is not None:
            if self._scopes.epoch is not None:
                self._run.services.report(
                    "An epoch was started inside an epoch; epochs do not nest, so the inner one is ignored."
                )
            yield
            return
        self._batch.discard()
        epoch = self._start_epoch(length)
        self._batch.begin(EXPECTED)
        end = _EpochEnd.FAILED
        try:
            yield
            end = _EpochEnd.COMPLETE
        finally:
            self._sync_counted_steps()
            self._batch.discard()  # the time after the last step is no batch
            self._end_epoch(epoch, end)

    def _fetch_watched(self, fetch: Callable[[], T]) -> T:
        """Make a fetch of this loop. In a loop that calls `step`, the first one after it is the wait for a batch."""
        if self._is_in_evaluation():
            return fetch()
        self.fetches.has_fetched = True
        return self._fetch_expected(fetch) if self._batch.phase is EXPECTED else self.fetches.wait(fetch)

    def _fetch_expected(self, fetch: Callable[[], T]) -> T:
        """Fetch the data of the expected batch, which starts when it is there."""
        self._batch.discard()
        has_started = self._scopes.epoch is not None  # else this is before the first `step`, which begins the epoch
        if has_started:
            self._fire(Event.BEFORE_DATALOADER)
        self._pulse.is_between_loops = False
        try:
            item = self.fetches.wait(fetch)
        except BaseException:
            self._pulse.is_between_loops = True
            self._batch.begin(EXPECTED)
            raise
        if has_started:
            self._fire(Event.AFTER_DATALOADER)
            self._start_batch()
        else:
            self._batch.begin(UNANNOUNCED)
        return item

    # -- evaluation -------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def evaluation(self) -> Iterator[None]:
        """Return a context for an evaluation. Between batches, only its own span is recorded."""
        self._sync_counted_steps()
        if self._is_inactive():
            yield
            return
        span, scopes = self._start_evaluation_span(), self._scopes
        is_between = self._is_on_loop() and not scopes.is_evaluating and self._is_between_batches()
        is_expected = is_between and self._batch.phase is EXPECTED
        if is_between:
            self._batch.discard()
        evaluation = self._windows.enter_evaluation(pauses=is_between)
        before = self._pulse.enter(_EVALUATION)
        self._fire(Event.EVAL_START)
        try:
            yield
        finally:
            self._fire(Event.EVAL_END)
            self._pulse.enter(before)
            self._windows.end_evaluation(evaluation, is_running=self._run.is_running)
            span.end()
            if is_expected and self._batch.phase is NONE:  # else training has continued meanwhile
                self._batch.begin(EXPECTED)

    def _is_in_evaluation(self) -> bool:
        """Return whether the caller is in an evaluation of the loop's."""
        return self._scopes.is_evaluating and self._scopes.is_in_evaluation(is_on_loop=self._is_on_loop())

    def _is_on_loop(self) -> bool:
        return threading.get_ident() == self.fetches.thread

    def _start_evaluation_span(self) -> OpenSpan:
        span = OpenSpan(self._eval, self._lasting)
        span.begin()
        return span

    def _is_between_batches(self) -> bool:
        """Return whether the loop is between batches.

        In a loop that calls `step`, only a fetch of a DataLoader shows that the expected batch has not started.
        """
        if self._batch.phase is EXPECTED:
            return self.fetches.has_fetched or self._scopes.epoch is None
        return self._batch.phase is NONE

    def _iterate_evaluation(self, iterable: Iterable[T]) -> Iterator[T]:
        """Yield evaluation batches. It changes nothing in the loop, because it may be left and stay referenced."""
        is_alone, before = not self._scopes.is_evaluating, _OTHER
        span = self._start_evaluation_span() if is_alone else None
        try:
            if is_alone:
                before = self._pulse.enter(_EVALUATION)
                self._fire(Event.EVAL_START)
            for item in iterable:
                self._fire(Event.EVAL_BATCH_START)
                batch = self._eval_batch.begin()
                try:
                    yield item
                finally:
                    self._eval_batch.end(batch)
                del item
                self._fire(Event.EVAL_BATCH_END)
        finally:
            if span is not None:
                self._fire(Event.EVAL_END)
                self._pulse.enter(before)
                span.end()

    # -- batches and epochs -----------------------------------------------------------------------------------

    def _is_inactive(self) -> bool:
        """Return whether nothing is recorded any more: the run is closed, or this is a forked child.

        Raises:
            ProfilerStateError: before the run.
        """
        if self._run.is_new:
            raise ProfilerStateError("This Profiler is not running. Put the loop inside `with profiler:`.")
        return self._run.is_forked or not self._run.is_running

    def _fire(self, event: Event) -> None:
        if self._run.is_running:
            self._callbacks.fire(event)

    def _end_batch(self, samples: int = 0, tokens: int = 0, end_ns: int | None = None) -> None:
        """End the batch: advance the timestamp, and count the next steps in C where possible."""
        added_counts, self._batch.added_counts = self._batch.added_counts, (0, 0)
        samples, tokens = samples + added_counts[0], tokens + added_counts[1]
        if self.counted.is_on and self._pulse.writer.count_step(samples, tokens):
            self._batch.phase = NONE
            return
        self._sync_counted_steps()
        duration = self._batch.end(end_ns)
        if self._run.is_running:
            state = self._state
            state.timestamp = state.timestamp.to_next_batch(samples, tokens, duration)
            self._windows.end_batch(end_ns)
            if not self.counted.start(calls_step=not self._is_in_batches_loop()):
                self._sync_counted_steps()

    def _sync_counted_steps(self) -> None:
        """Stop counting steps in C, and continue the loop from the position that the pulse has counted to."""
        if self.counted.is_on and (batch := self.counted.stop()) is not None:
            self._batch.start_ns, is_fetched = batch
            self._batch.phase = ANNOUNCED if is_fetched else EXPECTED

    def _is_in_batches_loop(self) -> bool:
        """Return whether this is a loop over `batches`."""
        return self._scopes.epoch is not None and self._scopes.epoch.iterable is not None

    # -- their epochs -----------------------------------------------------------------------------------------

    def _start_epoch(self, length: int | None, *, is_implied: bool = False) -> Epoch:
        """Start an epoch. If it is the first and implied, its span is open since the run started."""
        self._sync_counted_steps()
        self.follow_thread()
        self._pulse.is_between_loops = False
        epoch = self._scopes.push(Epoch(is_implied))
        state, left_at = self._state, None
        if self._last_end is not _EpochEnd.COMPLETE:
            self._last_end, left_at = _EpochEnd.COMPLETE, state.timestamp
            state.timestamp = state.timestamp.to_next_epoch()
        if length is not None:
            state.dataloader_len = length
        if not is_implied:
            self._epoch_span.abandon()
        self._windows.start_epoch(left_at)
        if not self._epoch_span.is_open:
            self._epoch_span.begin()
        return epoch

    def _end_epoch(self, epoch: Epoch, end: _EpochEnd) -> None:
        if self._scopes.epoch is not epoch:
            return
        self._sync_counted_steps()
        self._scopes.remove(epoch)
        self._pulse.is_between_loops = True
        self._epoch_span.end()
        if not self._run.is_running:
            return
        if end is not _EpochEnd.FAILED:
            self._fire(Event.EPOCH_END)
        if end is _EpochEnd.COMPLETE:
            state = self._state
            state.timestamp = state.timestamp.to_next_epoch()
        self._last_end = end


def _get_length(iterable: Iterable[object]) -> int | None:
    try:
        return len(iterable)  # pyright: ignore[reportArgumentType]
    except TypeError:
        return None
