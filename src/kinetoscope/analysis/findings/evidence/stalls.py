"""Stalls of the loops, by kind: time per step, and the spans and source lines of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import polars as pl

from kinetoscope.analysis.cpu.library_calls import LibraryCall, find_library_call, library_call_of_stalls
from kinetoscope.analysis.cpu.sampled_lines import IN_TORCH, MAX_LATE_SHARE, SampledLine, share_lower_bound
from kinetoscope.analysis.findings.evidence.locations import find_sampled_lines, locate, split_samples
from kinetoscope.analysis.findings.evidence.modules import ModuleEvidence
from kinetoscope.analysis.findings.evidence.window import WindowEvidence
from kinetoscope.analysis.findings.finding import MAX_NAMED, Where
from kinetoscope.analysis.windows.window import MIN_RECURRING_STEPS, MIN_STEPS
from kinetoscope.formats.trace_names import LATE_LINE

_UNKNOWN_LINE = (
    "The line is unknown: every sample shows the same call into a library that runs the loop, and Python allows "
    "sampling the stack only at some points. "
)


class StallTable:
    """Stalls in some windows, whose ranks recorded ``num_rank_steps`` together, and the run ``num_steps``."""

    def __init__(self, windows: Sequence[WindowEvidence], num_rank_steps: int, num_steps: int) -> None:
        self._num_rank_steps, self._num_steps, self._num_windows = num_rank_steps, num_steps, len(windows)
        self._known: dict[str, Stalls] = {}
        is_recurring = pl.col("step").drop_nulls().n_unique().over("kind", "name") >= MIN_RECURRING_STEPS
        stalls = pl.concat([one.stalls.with_columns(is_recurring=is_recurring) for one in windows])
        self._stalls = stalls.sort("total_ns", descending=True)
        self._by_kind = {part["kind"][0]: part for part in self._stalls.partition_by("kind", maintain_order=True)}
        self._sampled = pl.concat([split_samples(one) for one in windows])
        self._calls = pl.concat([one.library_calls for one in windows])
        self._modules = ModuleEvidence(windows)

    def of_kind(self, kind: str) -> "Stalls":
        """Return the stalls of one kind, those with most time first."""
        if kind not in self._known:
            self._known[kind] = Stalls(
                kind=kind,
                frame=self._by_kind.get(kind, self._stalls.clear()),
                samples=self._sampled.filter(pl.col("kind") == kind),
                library_calls=self._calls,
                modules=self._modules.of_costs(kind),
                num_rank_steps=max(1, self._num_rank_steps),
                num_steps=self._num_steps,
                num_windows=max(1, self._num_windows),
            )
        return self._known[kind]


@dataclass(frozen=True, kw_only=True)
class Stalls:
    """Stalls of one kind. Times and counts are per step, on average over ranks."""

    kind: str
    frame: pl.DataFrame
    samples: pl.DataFrame
    library_calls: pl.DataFrame
    modules: tuple[str, ...]
    """The module with at least half of their time, as in `Where`."""
    num_rank_steps: int
    num_steps: int
    num_windows: int

    def __len__(self) -> int:
        return len(self.frame)

    @property
    def all_ns(self) -> int:
        """The time of all stalls in the whole recording, of all ranks."""
        return int(self.frame["total_ns"].sum())

    @property
    def total_ns(self) -> float:
        """Their time per step."""
        return self.all_ns / self.num_rank_steps

    @property
    def num_calls(self) -> float:
        """Their number per step."""
        return int(self.frame["num_calls"].sum()) / self.num_rank_steps

    @property
    def median_ns(self) -> float | None:
        """The median duration of a stall, by the mean of each step; None without stalls."""
        each: Any = (self.frame["total_ns"] / self.frame["num_calls"]).median()
        return each

    @property
    def steps_between(self) -> float | None:
        """The mean number of steps from one step with a stall to the next; None for too few steps."""
        steps = self.frame["step"].drop_nulls().unique().sort().to_list()
        is_known = len(steps) > 1 and self.num_steps >= MIN_STEPS
        return (steps[-1] - steps[0]) / (len(steps) - 1) if is_known else None

    @property
    def recurring(self) -> "Stalls":
        """The stalls that recur in several steps of a window."""
        return replace(self, frame=self.frame.filter("is_recurring"))

    @property
    def nonrecurring_ns_per_window(self) -> float:
        """The time per window of stalls that do not recur."""
        return int(self.frame.filter(~pl.col("is_recurring"))["total_ns"].sum()) / self.num_windows

    def where(self, *, with_steps: bool = False, lines_by: str = "total_ns") -> Where:
        """Return their location, with the lines of libraries that the loop is in, and their module."""
        if not len(self):
            return Where()
        where = locate(self.frame, self.samples, with_steps=with_steps, lines_by=lines_by)
        _, inside = self._call_in_every_sample
        calls = [inside] if inside else []
        lines = [call.line for call in calls] + [*where.lines[:1]]
        lines += [call.line for line in where.lines[:1] if (call := self.library_call(line))]
        return replace(where, lines=(*lines, *where.lines[1:])[:MAX_NAMED], modules=self.modules)

    def share_of_line(self, lines_by: str = "total_ns") -> float | None:
        """Return the share of the first line in all stalls with a known line."""
        by_line = self.frame.drop_nulls("line").group_by("line").agg(pl.col(lines_by).sum())
        most: Any = by_line[lines_by].max()
        return most / by_line[lines_by].sum() if most else None

    # -- samples of stacks in these stalls

    @cached_property
    def by_call(self) -> pl.DataFrame:
        """The samples by ``line``, ``call`` and ``state``, the most frequent first, with their ``share``."""
        keys = ("line", "call", "state")
        found = self.samples.group_by(*keys).agg(pl.col("total_ns", "num_samples").sum())
        found = found.sort("total_ns", *keys, descending=[True, False, False, False])
        return found.with_columns(share=pl.col("total_ns") / pl.col("total_ns").sum())

    @cached_property
    def sampled_line(self) -> SampledLine | None:
        """The line with most of the time; None if it may be noise.

        Samples of one step may depend on each other, so there are only as many independent ones as steps.
        """
        lines = find_sampled_lines(self.samples)
        if not lines:
            return None
        of_line = self.samples.filter(line=lines[0])
        line_ns, all_ns = int(of_line["total_ns"].sum()), int(self.samples["total_ns"].sum())
        if of_line["state"].null_count():
            return SampledLine(lines[0], line_ns / all_ns, None, None)
        late_ns = int(of_line.filter(state=LATE_LINE)["total_ns"].sum())
        min_share = share_lower_bound((line_ns - late_ns) / all_ns, self.samples["step"].n_unique())
        return SampledLine(lines[0], line_ns / all_ns, min_share, late_ns / line_ns)

    def in_torch_ns(self, line: str | None = None) -> float:
        """Return the time per step in which samples, of all lines or one, show a wait for threads of torch."""
        found = self.samples.filter(pl.col("state") == IN_TORCH)
        found = found if line is None else found.filter(line=line)
        return int(found["total_ns"].sum()) / self.num_rank_steps

    @property
    def at_line(self) -> str:
        """The line with most of the time, after "at", for titles; "" where no line is certain."""
        found = self.sampled_line
        return f" at {found.line}" if found is not None and found.fits_title else ""

    def describe_line(self, time: str = "this time") -> str:
        """Return a sentence on the line with most of the time; "" where no line is certain."""
        found = self.sampled_line
        is_inside, call = self._call_in_every_sample
        on_call = f"{call.line} ({call.function}) takes most of {time}. " if call else _UNKNOWN_LINE
        on_call = on_call if is_inside else ""
        if found is None:
            return on_call
        if found.is_late:
            takes = f"{found.line}, or code shortly before it, takes {100 * found.share:.0f} % of {time}"
            return f"{on_call}{takes}. "
        at_least = 100 * (found.min_share or 0.0)
        bound = f" (at least {at_least:.0f} % with 95 % confidence)" if at_least >= 1 else ""
        takes = f"{found.line} takes {100 * found.share:.0f} % of {time}{bound}{self.inside_library(found.line)}"
        return f"{on_call}{takes}. "

    @property
    def evidence_of_line(self) -> dict[str, float | None]:
        """The line with most of the time, as evidence."""
        found = self.sampled_line
        return {
            "share_of_line": found and found.share,
            "min_share_of_line": found and found.min_share,
            "late_share_of_line": found and found.late_share,
        }

    def library_call(self, line: str) -> LibraryCall | None:
        """Return the library function with the time of a line that calls a library which runs the loop.

        For stalls with such a function it is the one in which they began.
        """
        return library_call_of_stalls(self.frame, line) or find_library_call(self.library_calls, self.kind, line)

    def inside_library(self, line: str) -> str:
        """Return the library function with most of a line's time, after a comma; "" if there is none."""
        call = self.library_call(line)
        return f", mostly in {call.function} ({call.line})" if call else ""

    @cached_property
    def _call_in_every_sample(self) -> tuple[bool, LibraryCall | None]:
        """True if most samples only have a line that is in every sample, and the library function with most of them.

        The function is None where the samples were read late.
        """
        inside = self.samples.drop_nulls("every_sample")
        inside_ns = int(inside["total_ns"].sum())
        if not inside_ns or 2 * inside_ns < int(self.samples["total_ns"].sum()):
            return False, None
        late_ns = int(inside.filter(pl.col("state").is_null() | (pl.col("state") == LATE_LINE))["total_ns"].sum())
        is_late = late_ns > MAX_LATE_SHARE * inside_ns
        return True, None if is_late else self.library_call(inside["every_sample"][0])
