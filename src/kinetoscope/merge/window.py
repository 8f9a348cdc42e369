"""Part of the time to merge, as batches or as the last seconds, and its interval on each rank."""

from collections.abc import Sequence
from dataclasses import dataclass

from kinetoscope.core.text.wording import format_ranges
from kinetoscope.errors import MergeError, SettingsError
from kinetoscope.merge.input_file import InputFile, Moment

_SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The part of the traces to keep: batches ``first_batch`` to ``last_batch``, or the last ``last_s`` seconds.

    A batch is a ``ProfilerStep#N`` of torch or an ``event/batch`` of ours. A span that is partly in it is kept whole.
    """

    first_batch: int | None = None
    last_batch: int | None = None
    last_s: float | None = None

    def __post_init__(self) -> None:
        if (self.first_batch is None) != (self.last_batch is None) or (self.first_batch is None) == (
            self.last_s is None
        ):
            raise SettingsError(
                "A window is either from first_batch to last_batch, or the last_s seconds: pass one of them."
            )
        if self.last_s is not None and not 0 < self.last_s < 1e9:
            raise SettingsError(f"last_s must be a number of seconds above 0, not {self.last_s}.")

    def of_ranks(self, files: Sequence[InputFile], ranks: Sequence[int]) -> dict[int, Moment]:
        """Return the interval of the window on each rank that has one of its batches, in unix nanoseconds.

        Raises `MergeError` if none has.
        """
        windows = self._last_seconds(files, ranks) if self.last_s is not None else self._batches(files, ranks)
        if not windows:
            existing_batches = {batch for file in files for rank in ranks for batch in file.batches_of(rank)}
            raise MergeError(
                f"Nothing to merge: no file has any of the batches {self.first_batch} to {self.last_batch} "
                "(--batches). "
                + (
                    f"There are {format_ranges(sorted(existing_batches))}."
                    if existing_batches
                    else "There is no batch at all (ProfilerStep#N, event/batch)."
                )
            )
        return windows

    def _last_seconds(self, files: Sequence[InputFile], ranks: Sequence[int]) -> dict[int, Moment]:
        ends = [file.common_ns(file.latest_ns) for file in files if file.latest_ns is not None]
        end = max(ends, default=0)
        return dict.fromkeys(ranks, (end - round((self.last_s or 0) * _SECOND_NS), end))

    def _batches(self, files: Sequence[InputFile], ranks: Sequence[int]) -> dict[int, Moment]:
        windows: dict[int, Moment] = {}
        for rank in ranks:
            found = [moment for file in files for moment in self._chosen(file, rank)]
            if found:
                windows[rank] = min(begin for begin, _ in found), max(end for _, end in found)
        return windows

    def _chosen(self, file: InputFile, rank: int) -> list[Moment]:
        first, last = self.first_batch or 0, self.last_batch or 0
        return [moment for batch, moment in file.batches_of(rank).items() if first <= batch <= last]
