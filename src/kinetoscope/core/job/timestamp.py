"""The progress of a run: counts of epochs, batches, samples and tokens, and the wall-clock times they took."""

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, Protocol

COUNTS = ("epoch", "batch", "batch_in_epoch", "sample", "sample_in_epoch", "token", "token_in_epoch")
DURATIONS = ("total_wct", "epoch_wct", "batch_wct")
_ZERO = timedelta()
_MAX_COUNT = 2**63 - 1
_MAX_DURATION_S = 10**12


class Count(int):
    """An int that also has ``.value``, like Composer's `Time`."""

    __slots__ = ()

    @property
    def value(self) -> int:
        """The count as a plain int."""
        return int(self)


class Moment(Protocol):
    """The progress of a run: our `Timestamp`, Composer's, or any object with these attributes.

    A count is a number or has a ``.value``, like Composer's `Time`.
    """

    @property
    def epoch(self) -> Any:
        """Completed epochs."""

    @property
    def batch(self) -> Any:
        """Completed batches of the run."""

    @property
    def batch_in_epoch(self) -> Any:
        """Completed batches of the current epoch."""

    @property
    def sample(self) -> Any:
        """Samples seen."""

    @property
    def sample_in_epoch(self) -> Any:
        """Samples seen in the current epoch."""

    @property
    def token(self) -> Any:
        """Tokens seen."""

    @property
    def token_in_epoch(self) -> Any:
        """Tokens seen in the current epoch."""

    @property
    def total_wct(self) -> Any:
        """Wall-clock time of the run."""

    @property
    def epoch_wct(self) -> Any:
        """Wall-clock time of the current epoch."""

    @property
    def batch_wct(self) -> Any:
        """Wall-clock time of the last batch."""


def plain_value(value: Any) -> Any:
    """Return a value without its wrapper: Composer's `Time` and enums hold it in ``.value``."""
    return getattr(value, "value", value)


def plain_count(count: Any) -> int:
    """Return a count of Kinetoscope or Composer as an int."""
    return int(count) if isinstance(count, int) else int(plain_value(count))


def _count(index: int, doc: str) -> Any:
    return property(lambda self: Count(self._fields[index]), doc=doc)


def _duration(index: int, doc: str) -> Any:
    return property(lambda self: self._fields[index], doc=doc)


class Timestamp:
    """An immutable point in a training run.

    Counts are completed epochs, batches, samples and tokens; ``*_in_epoch`` counts start anew with every epoch.
    ``total_wct``, ``epoch_wct`` and ``batch_wct`` are wall-clock times of the run, of the current epoch and of the
    last batch, as `datetime.timedelta`.
    """

    # One tuple instead of ten slots: a timestamp is made for every batch, and a tuple is made in one step.
    __slots__ = ("_fields",)

    def __init__(
        self,
        epoch: int = 0,
        batch: int = 0,
        batch_in_epoch: int = 0,
        sample: int = 0,
        sample_in_epoch: int = 0,
        token: int = 0,
        token_in_epoch: int = 0,
        total_wct: timedelta = _ZERO,
        epoch_wct: timedelta = _ZERO,
        batch_wct: timedelta = _ZERO,
    ) -> None:
        counts = (epoch, batch, batch_in_epoch, sample, sample_in_epoch, token, token_in_epoch)
        fields = (*map(int, counts), total_wct, epoch_wct, batch_wct)
        object.__setattr__(self, "_fields", fields)

    @classmethod
    def _of(cls, fields: tuple[Any, ...]) -> "Timestamp":
        self = object.__new__(cls)
        object.__setattr__(self, "_fields", fields)
        return self

    _fields: tuple[Any, ...]

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"A Timestamp cannot be changed; make the next one with to_next_batch(). ({name})")

    epoch: Count = _count(0, "Completed epochs.")
    batch: Count = _count(1, "Completed batches of the run.")
    batch_in_epoch: Count = _count(2, "Completed batches of the current epoch.")
    sample: Count = _count(3, "Samples seen.")
    sample_in_epoch: Count = _count(4, "Samples seen in the current epoch.")
    token: Count = _count(5, "Tokens seen.")
    token_in_epoch: Count = _count(6, "Tokens seen in the current epoch.")
    total_wct: timedelta = _duration(7, "Wall-clock time of the run, a timedelta.")
    epoch_wct: timedelta = _duration(8, "Wall-clock time of the current epoch, a timedelta.")
    batch_wct: timedelta = _duration(9, "Wall-clock time of the last batch, a timedelta.")

    def to_next_batch(self, samples: int = 0, tokens: int = 0, duration: timedelta | None = None) -> "Timestamp":
        """Return the timestamp after one more batch, which took ``duration``."""
        took = _ZERO if duration is None else duration
        return self.to_later_batch(1, samples, tokens, took, took)

    def to_later_batch(
        self, num_batches: int, samples: int, tokens: int, duration: timedelta, duration_of_last: timedelta
    ) -> "Timestamp":
        """Return the timestamp after ``num_batches`` more batches.

        Args:
            num_batches: number of batches.
            samples: their samples together.
            tokens: their tokens together.
            duration: their wall-clock time together.
            duration_of_last: the wall-clock time of the last one.
        """
        epoch, batch, in_epoch, sample, sample_in, token, token_in, total, of_epoch, _ = self._fields
        return self._of(
            (
                epoch,
                batch + num_batches,
                in_epoch + num_batches,
                sample + samples,
                sample_in + samples,
                token + tokens,
                token_in + tokens,
                total + duration,
                of_epoch + duration,
                duration_of_last,
            )
        )

    def to_next_epoch(self) -> "Timestamp":
        """Return the timestamp at the start of the next epoch: one more epoch, with its counts at 0."""
        epoch, batch, _, sample, _, token, _, total, _, _ = self._fields
        return self._of((epoch + 1, batch, 0, sample, 0, token, 0, total, _ZERO, _ZERO))

    def __iter__(self) -> Iterator[tuple[str, int | float]]:
        """Pairs of field name and plain number (wall-clock times in seconds), for file names and traces."""
        for name, value in zip(COUNTS + DURATIONS, self._fields, strict=True):
            yield name, value.total_seconds() if isinstance(value, timedelta) else value

    def __eq__(self, other: object) -> bool:
        return self._fields == other._fields if isinstance(other, Timestamp) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._fields)

    def __repr__(self) -> str:
        return f"Timestamp({', '.join(f'{name}={value}' for name, value in self if value)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Timestamp, self._fields


CountedBatches = tuple[int, int, int, int, int]
"""The number of batches, their samples, tokens and nanoseconds, and the nanoseconds of the last one."""


class LiveTimestamp:
    """A timestamp that advances by itself: ``begin`` plus the batches that ``count`` returns.

    It advances until ``stop`` is called.
    """

    __slots__ = ("_begin", "_count", "stop")

    def __init__(self, begin: Timestamp, count: Callable[[], CountedBatches], stop: Callable[[], object]) -> None:
        self._begin, self._count = begin, count
        self.stop: Callable[[], object] = stop

    def now(self) -> Timestamp:
        """Return the current timestamp."""
        num_batches, samples, tokens, took_ns, last_ns = self._count()
        if not num_batches:
            return self._begin
        duration, of_last = (timedelta(microseconds=ns / 1000) for ns in (took_ns, last_ns))
        return self._begin.to_later_batch(num_batches, samples, tokens, duration, of_last)


def timestamp_fields(timestamp: Moment) -> dict[str, int | float]:
    """Return the numbers of a timestamp, ours or Composer's, by field name; wall-clock times in seconds."""
    if isinstance(timestamp, Timestamp):
        return dict(timestamp)
    fields = {name: getattr(timestamp, name) for name in COUNTS + DURATIONS if hasattr(timestamp, name)}
    return {name: _number(value) for name, value in fields.items()}


def _number(value: Any) -> int | float:
    value = plain_value(value)
    return value.total_seconds() if isinstance(value, timedelta) else value


def timestamp_from_fields(fields: Mapping[str, int | float]) -> Timestamp:
    """Return the timestamp of fields from `timestamp_fields`.

    The fields may come from a damaged file: unknown ones are ignored, and impossible numbers become the nearest
    possible ones.
    """
    values: dict[str, Any] = {}
    for name in COUNTS:
        values[name] = int(min(max(fields.get(name, 0), 0), _MAX_COUNT))
    for name in DURATIONS:
        values[name] = timedelta(seconds=min(max(fields.get(name, 0), 0), _MAX_DURATION_S))
    return Timestamp(**values)
