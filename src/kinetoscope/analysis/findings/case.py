"""analysis: a run as the rules of findings see it: what its steps take, and replays of it without a fault."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl

from kinetoscope.analysis.contention import CpuUse, find_cpu_use
from kinetoscope.analysis.findings.fault_graph import FaultGraph
from kinetoscope.analysis.findings.finding import (
    HIGH_SHARE,
    LEAST_SHARE,
    Finding,
    Where,
    build_finding,
    confidence_in,
    confidence_without_replay,
)
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.findings.lateness import find_late_ranks
from kinetoscope.analysis.findings.pipeline import find_pipeline, find_slow_stages
from kinetoscope.analysis.findings.run_queue_delay import RunQueueDelay
from kinetoscope.analysis.findings.signs import Signs
from kinetoscope.analysis.findings.titles import Title, add_detail
from kinetoscope.analysis.library_calls import LibraryCall, call_of_stops, find_library_call
from kinetoscope.analysis.periods import format_period, period_of
from kinetoscope.analysis.replay.replay import ReplayGraph, is_of_ranks
from kinetoscope.analysis.sampled_lines import MAX_LATE_SHARE, SampledLine, is_line_sure, least_share
from kinetoscope.analysis.step_time import FEWEST_TO_TIME
from kinetoscope.analysis.stragglers import LateRanks, StragglerRow
from kinetoscope.analysis.window import FEWEST_RECURRING, FEWEST_STEPS
from kinetoscope.formats.own_names import LATE

if TYPE_CHECKING:
    from kinetoscope.analysis.analyze import RunReport

_NAMED_SHARE = 0.05
MOST_NAMED = 3
"""How many spans, and source lines, a finding names."""

_MOST_LOST = 0.1
"""If more of the launches have no event on a device, the trace was thinned out."""

_OF_DEVICES = ("exposed_communication", "idle_gaps", "exposed_copy", "float32_matmul", "float64", "pipeline_bubble")
_OF_DEVICES += ("small_kernels",)
"""Kinds of faults that take a device's time. All others cost no more than what the device, or the loop, waits."""

_OF_LEDGER = ("input_bound",)
"""Kinds of faults whose cost is a part of a step's ledger. All others cost what they take of all that was recorded."""

_STOPS_OF_CAUSES = {"data": ("data",), "host": ("python", "blocked", "gc", "compile", "profiler")}
"""What may have made a rank late for a cause."""

_OF_RUNNING = ("python_overhead", "host_bound")
"""What takes longer where the loop's thread has no processor, and only seems to run."""

_FULL_PERCENT, _LITTLE_PERCENT = 90, 70
"""If the machine's cores are busier than this, and the process has less of one than this, its loop may wait for one."""

_ON_LATE_LINE = (
    "The line is unknown: every sample shows the same call into a library that runs the loop, and Python allows "
    "sampling the stack only at some points. "
)

_STOPS_OF_KINDS = {
    "input_bound": "data",
    "python_overhead": "python",
    "synchronisation": "sync",
    "garbage_collection": "gc",
    "recompilation": "compile",
    "exposed_copy": "copy",
    "profiler_cost": "profiler",
    "float64": "double",
    "blocked": "blocked",
    "hot_line": "loop",
    "small_kernels": "small",
}
_COLUMNS_OF_KINDS = {
    "host_bound": ("device_idle_ns",),
    "idle_gaps": ("device_idle_ns",),
    "exposed_communication": ("device_exposed_communication_ns", "communication_wait_ns"),
}
"""The signs, or else the columns of steps, that show in which steps there is what a finding is about."""

_MAX_SHARE_OF_ONE_STEP = 0.6
"""If one step gains more of a saving, it may be a hiccup: a transfer that took 8 ms longer in one of ten steps of 8 ms
was a finding of high confidence."""

_MOST_TIMES_MEAN = 4
"""What costs less on average, even so many times, is not looked at: ranks that wait for each other lose little more."""

_SAME_SHARE = 0.02
"""Savings that differ by less than this part of a step are the same."""

_ON_HELD = (
    " After that the DataLoader limits the loop, because its workers have little time to spare: add workers or make "
    "batches cheaper, too."
)
_ON_MOST = " The recording does not show the exact saving: it is at least the estimate, at most {:.0f} % of a step."
_ON_PAUSES = (
    " It saves up to {:.0f} % of a step while pauses of the loop, such as GC pauses, stay as long as they are: kernels "
    "that were launched ahead then keep the GPU busy."
)


def on_busy_cores(all_percent: float, own_percent: float) -> str:
    """Return a clause on the use of the CPU cores."""
    return f"The machine's cores were {all_percent:.0f} % busy, and this process used {own_percent:.0f} % of one"


class Case:
    """The rows of a run, its signs, and its replays.

    ``late`` are the ranks that hold the others up together, of the ``candidates``, ``late_once`` those that did so in a
    single step, and ``slow`` the slow stages of a ``pipeline``; other findings leave them all out.
    """

    def __init__(self, report: "RunReport", graph: ReplayGraph, signs: Sequence[Signs], candidates: LateRanks) -> None:
        self.report, self.signs = report, signs
        self.timed_calls, self.late_phases = candidates.calls, candidates.phases
        self.num_steps: int = report.run["num_steps"]
        self.step_ns = report.run["step_ns"] or 0.0
        self.has_device = any(row.window_ns is not None for row in report.ranks)
        self.knows_intervals = self.num_steps >= FEWEST_STEPS
        self.is_replayed = graph.why_untrusted is None
        self.graph = FaultGraph(graph)
        self._fixes: dict[str, Fix] = {}
        late = find_late_ranks(report, self.graph, signs, candidates)
        self.late, self.late_once, self.proven, self.uneven = late.together, late.once, late.proven, late.uneven
        self.explained_ranks = late.explained_ranks
        self.pipeline = find_pipeline(report.collectives)
        self.slow = find_slow_stages(report, self.graph, self.pipeline)
        self.on_time = frozenset(row.rank for row in (*self.late, *self.late_once)) - self.slow.ranks
        self.late_ranks = self.on_time | self.slow.ranks
        self._steps = [row for row in report.steps if row.rank not in self.late_ranks]

    # -- what a step takes, on average over ranks that are not late
    def mean_ns(self, name: str) -> float:
        """A column of steps."""
        values = [value for row in self._steps if (value := getattr(row, name)) is not None]
        return sum(values) / max(1, len(values))

    def data_wait_ns(self) -> float:
        """What the ledger of a step has: the same number as everywhere else, where no rank is late."""
        rows = {row.rank: row for row in self.report.ranks if row.rank not in self.late_ranks}
        ledgers = [row.parts["host"] for row in rows.values() if row.parts is not None]
        if not self.late_ranks and self.report.run["parts"] is not None:
            ledgers = [self.report.run["parts"]["host"]]
        return sum(ledger["data_wait_ns"] or 0 for ledger in ledgers) / max(1, len(ledgers))

    def device_ns(self, name: str) -> float:
        """A column of ranks; where a rank has several devices, their mean."""
        rows = [row for row in self.report.ranks if row.rank not in self.late_ranks and row.num_steps]
        values = [(getattr(row, name) or 0) / row.num_steps for row in rows]
        return sum(values) / max(1, len(values))

    def host_ns(self, part: str) -> float:
        """What threads of the host spend with a part that replays know, without runs of small kernels."""
        taken = self._patients.select(pl.col(part).filter(~pl.col("in_run")).sum())
        return int(taken.item()) / max(1, len(self._steps))

    def launching_ns(self) -> float:
        """What the host takes to launch kernels, with the operators around the launches, without runs of small ones."""
        edges = self.graph.without_launches().edges
        taken = edges.select(pl.col("launch").filter(~is_of_ranks(self.late_ranks)).sum())
        return int(taken.item()) / max(1, len(self._steps))

    def without_work_ns(self) -> float:
        """For how long a device waits for its host, or for other ranks; on the CPU everything counts.

        Without a replay nobody knows how much of a wait for the late rank is the host's: then it does not count.
        """
        if not self.has_device:
            return self.step_ns
        idle_ns = self.device_ns("idle_host_wait_ns") + self.device_ns("idle_kernel_wait_ns")
        return idle_ns + self.waits_ns(frozenset() if self.is_replayed else self.late_ranks)

    def idle_ns(self) -> float:
        """For how long a device is idle in a step; where that is not known, for the whole step."""
        parts = self.report.run["parts"]
        device = parts["device"] if parts is not None else None
        return self.step_ns if device is None or device["idle_ns"] is None else device["idle_ns"]

    def before_graphs_ns(self) -> float:
        """For how long it is idle, for no reason that is seen, before kernels of CUDA graphs."""
        return sum(one.graph_gaps_ns for one in self._own_signs) / max(1, len(self._steps))

    def waits_ns(self, but_for: frozenset[int] = frozenset()) -> float:
        """What ranks wait for each other in collectives, and compute nothing meanwhile; ``but_for`` some of them."""
        waits = [
            wait
            for call in self.report.collectives
            if call.waits_ns is not None and call.step is not None and call.late_rank not in but_for
            for rank, wait in zip(call.ranks, call.waits_ns, strict=True)
            if rank not in self.late_ranks
        ]
        return sum(waits) / max(1, len(self._steps))

    def python_before_ns(self, names: Collection[str]) -> float:
        """The Python that operators of these names need before them."""
        of_ranks = [one.python_before for one in self.signs if one.rank not in self.late_ranks]
        return sum(of_rank.get(name, 0) for of_rank in of_ranks for name in names) / max(1, len(self._steps))

    def hidden_gaps_ns(self) -> float:
        """For how long in a step computations began late for no reason that is seen, while their device communicated;
        on average over all ranks."""
        return self.graph.as_recorded.hidden_ns / max(1, len(self.report.steps))

    def exposed_to_device_ns(self) -> float:
        """For how long in a step a device does nothing but copy from its host, on average."""
        return sum(one.exposed_to_device_ns for one in self._own_signs) / max(1, len(self._steps))

    def stops(self, kind: str) -> pl.DataFrame:
        """The signs of one kind, those that took the most first."""
        return self._stops_by_kind.get(kind, self._stops.clear())

    @cached_property
    def _stops_by_kind(self) -> dict[str, pl.DataFrame]:
        return {stops["kind"][0]: stops for stops in self._stops.partition_by("kind", maintain_order=True)}

    def total_ns(self, kind: str) -> float:
        """What the signs of one kind took of a step."""
        return int(self.stops(kind)["total_ns"].sum()) / max(1, len(self._steps))

    def in_steps(self, kind: str) -> pl.DataFrame:
        """Those that come in several steps of a window, not once or twice around it."""
        return self.stops(kind).filter("is_recurring")

    def in_steps_ns(self, kind: str) -> float:
        """What those take of a step."""
        return int(self.in_steps(kind)["total_ns"].sum()) / max(1, len(self._steps))

    def around_windows_ns(self, kind: str) -> float:
        """What all others take of a window, and of what comes before and after its steps."""
        others = self.stops(kind).filter(~pl.col("is_recurring"))
        return int(others["total_ns"].sum()) / max(1, len(self._own_signs))

    def calls(self, kind: str) -> float:
        """How many signs of one kind a step has."""
        return int(self.stops(kind)["num_calls"].sum()) / max(1, len(self._steps))

    def median_ns(self, kind: str) -> float | None:
        """Return what the median sign of one kind takes, by the mean of each step; None without any."""
        stops = self.stops(kind)
        each: Any = (stops["total_ns"] / stops["num_calls"]).median()
        return each

    def interval(self, kind: str) -> float | None:
        """From one step with a sign of this kind to the next one, on average; None where too few steps can tell."""
        steps = self.stops(kind)["step"].drop_nulls().unique().sort().to_list()
        return (steps[-1] - steps[0]) / (len(steps) - 1) if len(steps) > 1 and self.knows_intervals else None

    @cached_property
    def pauses(self) -> frozenset[str]:
        """The replay's parts that stop the loop now and then. What they take is not the cost of a sync before them."""
        return frozenset(part for part in ("gc", "compile", "profiler", "blocked") if self.host_ns(part) > 0)

    def operators_of(self, ranks: Collection[int | None]) -> float:
        """Return how many operators a step has on the rank with most of them, of these ``ranks``."""
        return max((num for rank, num in self._operators_by_rank.items() if rank in ranks), default=0.0)

    def share_of_operators(self, num_operators: float) -> float | None:
        """Return the share that so many operators have of a step's; None where none were recorded."""
        most = self.operators_of(self._operators_by_rank)
        return min(1.0, num_operators / most) if most else None

    @cached_property
    def _operators_by_rank(self) -> dict[int | None, float]:
        num_steps = Counter(row.rank for row in self.report.steps)
        totals = Counter[int | None]()
        for one in self.signs:
            totals[one.rank] += one.num_operators
        return {rank: num / num_steps[rank] for rank, num in totals.items() if num_steps[rank]}

    def small_kernels(self) -> tuple[float, float, float]:
        """Return kernels per step of runs of small ones, the host's ns for them, and the device's for empty ones."""
        num_steps = max(1, len(self._steps))
        small, empty = self._patients.filter("in_run"), self._patients.filter("is_empty")
        return len(small) / num_steps, int(small["weight"].sum()) / num_steps, int(empty["weight"].sum()) / num_steps

    def where(self, stops: pl.DataFrame, *, with_steps: bool = False, lines_by: str = "total_ns") -> Where:
        """The places of signs; ``with_steps``, also those steps. Lines are in order of the column ``lines_by``."""
        kinds = stops["kind"].unique()
        is_kind = pl.col("kind").is_in(kinds.implode())
        where = _where(stops, self._sampled.filter(is_kind), with_steps=with_steps, lines_by=lines_by)
        calls = [call for line in where.lines[:1] for kind in kinds if (call := self.library_call(kind, line))]
        inside = [call for kind in kinds if (call := self._calls_in_every_sample(kind)[1])]
        lines = (
            *(call.line for call in inside),
            *where.lines[:1],
            *(call.line for call in calls),
            *where.lines[1:],
        )
        return replace(where, lines=lines[:MOST_NAMED])

    def _calls_in_every_sample(self, kind: str) -> tuple[bool, LibraryCall | None]:
        """Whether most samples of a kind only show a line that is in every sample, and the library's function that
        takes most of that time; None where the samples were read late."""
        sampled = self._sampled.filter(pl.col("kind") == kind)
        inside = sampled.drop_nulls("every_sample")
        inside_ns = int(inside["total_ns"].sum())
        if not inside_ns or 2 * inside_ns < int(sampled["total_ns"].sum()):
            return False, None
        late_ns = int(inside.filter(pl.col("state").is_null() | (pl.col("state") == LATE))["total_ns"].sum())
        is_late = late_ns > MAX_LATE_SHARE * inside_ns
        return True, None if is_late else self.library_call(kind, inside["every_sample"][0])

    def library_call(self, kind: str, line: str) -> LibraryCall | None:
        """Where the time of a line goes that calls a library which has the loop; or in which function of a library the
        signs began that say so themselves."""
        if said := call_of_stops(self.stops(kind), line):
            return said
        calls = pl.concat([one.library_calls for one in self._own_signs])
        return find_library_call(calls, kind, line)

    def share_of_line(self, stops: pl.DataFrame, lines_by: str = "total_ns") -> float | None:
        """The part that the first of the lines has in all signs of which a line is known."""
        by_line = stops.drop_nulls("line").group_by("line").agg(pl.col(lines_by).sum())
        most: Any = by_line[lines_by].max()
        return most / by_line[lines_by].sum() if most else None

    def where_late(self, rows: Sequence[StragglerRow]) -> Where:
        """The ranks that are late, their steps, and what they did in them."""
        found: dict[str, list[Any]] = {"stops": [], "sampled": []}
        for row in rows:
            is_then = pl.col("kind").is_in(_STOPS_OF_CAUSES.get(row.cause, ())) & pl.col("step").is_in(row.steps)
            for one in (one for one in self.signs if one.rank == row.rank):
                found["stops"].append(one.stops.filter(is_then))
                found["sampled"].append(_without_lines_in_every_sample(one).filter(is_then))
        ranks, steps = (
            tuple(sorted(all_of)) for all_of in ({r.rank for r in rows}, {s for r in rows for s in r.steps})
        )
        return replace(_where(*map(pl.concat, found.values())), ranks=ranks, steps=steps)

    def sampled_line(self, kind: str) -> SampledLine | None:
        """The line that took the most of the time of one kind of signs, if one is sure. Samples of one step may depend
        on each other, so there are only as many independent ones as steps."""
        sampled = self._sampled.filter(pl.col("kind") == kind)
        lines = _sampled_lines(sampled)
        if not lines:
            return None
        of_line = sampled.filter(line=lines[0])
        line_ns, all_ns = int(of_line["total_ns"].sum()), int(sampled["total_ns"].sum())
        if of_line["state"].null_count():
            return SampledLine(lines[0], line_ns / all_ns, None, None)
        late_ns = int(of_line.filter(state=LATE)["total_ns"].sum())
        at_least = least_share((line_ns - late_ns) / all_ns, sampled["step"].n_unique())
        return SampledLine(lines[0], line_ns / all_ns, at_least, late_ns / line_ns)

    def on_line(self, kind: str, time: str = "this time") -> str:
        """Return a sentence on the line with most of the time of a kind; "" where no line is certain."""
        found = self.sampled_line(kind)
        is_inside, call = self._calls_in_every_sample(kind)
        said = (f"{call.line} ({call.function}) takes most of {time}. " if call else _ON_LATE_LINE) if is_inside else ""
        if found is None:
            return said
        if found.is_late:
            takes = f"{found.line}, or code shortly before it, takes {100 * found.share:.0f} % of {time}"
            return f"{said}{takes}. "
        at_least = 100 * (found.at_least or 0.0)
        bound = f" (at least {at_least:.0f} % with 95 % confidence)" if at_least >= 1 else ""
        inside = self.inside_library(kind, found.line)
        return f"{said}{found.line} takes {100 * found.share:.0f} % of {time}{bound}{inside}. "

    def at_line(self, kind: str) -> str:
        """Return the line with most of the time of a kind, after "at", for titles; "" where no line is certain."""
        found = self.sampled_line(kind)
        return f" at {found.line}" if found is not None and found.is_title else ""

    def inside_library(self, kind: str, line: str) -> str:
        """Return the library function with most of a line's time, after a comma; "" if there is none."""
        call = self.library_call(kind, line)
        return f", mostly in {call.function} ({call.line})" if call else ""

    @property
    def has_unsampled_workers(self) -> bool:
        """Whether the loop was sampled, but no worker while it made a batch."""
        return any(one.is_sampled for one in self._own_signs) and not len(self.sampled("data"))

    @cached_property
    def run_queue_delay(self) -> RunQueueDelay:
        """Run-queue delay of the loops."""
        return RunQueueDelay(self._steps, self.step_ns)

    @cached_property
    def cpu_use(self) -> CpuUse:
        """Who used the CPUs of the host whose loops waited longest for one."""
        notes = [(one.rank, one.processors) for one in self.signs]
        return find_cpu_use(self.report.steps, self.report.ranks, notes)

    @cached_property
    def on_full_cores(self) -> tuple[float, float] | None:
        """How busy the machine's cores were, and how much of one a process of this run had, in percent, where loops may
        have waited for a core, since others filled them. None if they did not, if that is not known, and where it was
        recorded how long they waited."""
        if self.run_queue_delay.is_known:
            return None
        read = [(one.processor_percent, one.process_percent) for one in self.signs]
        crowded = [(all_of, own) for all_of, own in read if all_of is not None and own is not None]
        crowded = [(all_of, own) for all_of, own in crowded if all_of > _FULL_PERCENT and own < _LITTLE_PERCENT]
        return min(crowded, key=lambda one: one[1], default=None)

    def may_wait_for_core(self) -> str:
        """Return sentences on loops that may have waited for a core; "" if they did not, or if that is unknown."""
        if self.on_full_cores is None:
            return ""
        return (
            f" {on_busy_cores(*self.on_full_cores)}: its loop may have waited for a core. This system does not report "
            "run-queue delay."
        )

    def sampled(self, kind: str) -> pl.DataFrame:
        """The samples in signs of one kind by ``line``, ``call`` and ``state``, the most frequent first, with their
        ``share``."""
        keys = ("line", "call", "state")
        found = (
            self._sampled.filter(pl.col("kind") == kind).group_by(*keys).agg(pl.col("total_ns", "num_samples").sum())
        )
        found = found.sort("total_ns", *keys, descending=[True, False, False, False])
        return found.with_columns(share=pl.col("total_ns") / pl.col("total_ns").sum())

    def evidence_of_line(self, kind: str) -> dict[str, float | None]:
        """That line as evidence."""
        found = self.sampled_line(kind)
        return {
            "share_of_line": found and found.share,
            "least_share_of_line": found and found.at_least,
            "late_share_of_line": found and found.late_share,
        }

    # -- what is wrong

    @cached_property
    def is_guess(self) -> bool:
        """Whether nothing can be of high confidence: no replay is trusted, there are too few steps to know their time,
        the trace was thinned out, or ranks are missing with which these communicate."""
        is_thinned = any(one.lost_share > _MOST_LOST for one in self.signs)
        return not self.is_replayed or self.num_steps < FEWEST_TO_TIME or is_thinned or self._waits_for_unknown

    @property
    def _waits_for_unknown(self) -> bool:
        """Whether there are ranks that were not recorded, for which the recorded ones might have to wait after a fault
        was mended."""
        num_ranks = self.report.run["world_size"] or 0
        return len(self.report.run["ranks"]) < num_ranks and len(self.report.collectives) > 0

    def finding(
        self,
        kind: str,
        title: Title,
        advice: str,
        *,
        cost_ns: float,
        fix: Fix | None,
        evidence: Mapping[str, float | None],
        where: Where | None = None,
        high_share: float = HIGH_SHARE,
        is_estimate: bool = False,
    ) -> Finding | None:
        """A finding that costs so much of a step, if ``fix`` saves enough, also without waits for late ranks. Without a
        fix no replay can tell, and the cost decides. An estimate is at most of medium confidence."""
        if kind not in _OF_LEDGER:
            cost_ns = self.report.gained_ns(cost_ns * self.num_steps) or 0.0
        cost_ns = min(cost_ns, self.step_ns if kind in _OF_DEVICES else min(self.step_ns, self.without_work_ns()))
        is_small = _MOST_TIMES_MEAN * self.run_queue_delay.share_of_step(kind, cost_ns) < LEAST_SHARE * high_share
        if not self.step_ns or (is_small and kind not in self.proven.by_kind):
            return None
        fix = fix and replace(fix, late=self.on_time, slow=self.slow.ranks)
        saving_ns = self.saving_ns(fix) if fix else None
        share = self.run_queue_delay.share_of_step(kind, cost_ns if saving_ns is None else saving_ns)
        held_ns = self._held_ns(fix, saving_ns)
        if share + self.run_queue_delay.share_of_step(kind, held_ns) < LEAST_SHARE * high_share:
            return None
        on_full_cores = self.may_wait_for_core() if kind in _OF_RUNNING else ""
        is_estimate |= (fix is not None and saving_ns is None) or bool(on_full_cores)
        period, most_ns = self._period(kind), self._most_ns(fix, saving_ns, held_ns)
        cost_ns = max(cost_ns, saving_ns or 0)
        found = build_finding(
            kind,
            add_detail(title(cost_ns), f", {every}" if (every := format_period(period)) else ""),
            advice + self._on_most(most_ns, held_ns, fix) + on_full_cores,
            confidence=self._confidence(
                kind, cost_ns if saving_ns is None else saving_ns, high_share, fix=fix, is_estimate=is_estimate
            ),
            period=period,
            evidence={
                **evidence,
                "saving_at_most_ns": most_ns,
                "num_late_ranks_left_out": len(self.late_ranks) or None,
            },
            where=self.proven.add_ranks(kind, where or Where(), self.report.run["ranks"]),
            cost_ns=cost_ns,
            saving_ns=saving_ns,
        )
        return self.keep_fix(found, fix)

    def _confidence(self, kind: str, worth_ns: float, high_share: float, *, fix: Fix | None, is_estimate: bool) -> str:
        """Return the confidence of a finding that is worth this time of a step.

        It is not high for an estimate, while loops wait for a CPU, or where one step gains most of the saving: a single
        hiccup is no pattern.
        """
        share = self.run_queue_delay.certain_share_of_step(kind, worth_ns)
        confidence = (confidence_without_replay if self.is_guess else confidence_in)(share, high_share)
        if confidence != "high":
            return confidence
        is_capped = is_estimate or self.run_queue_delay.lowers(kind) or self._is_of_one_step(fix)
        return "medium" if is_capped else "high"

    def _is_of_one_step(self, fix: Fix | None) -> bool:
        """Return whether one step of several gains most of what a fix saves."""
        if fix is None or self.num_steps < 2:
            return False
        halves = fix.variant(self.graph).gained_by_slice(fix.change, 2 * self.num_steps)
        most_ns = max(map(sum, pairwise(halves)), default=0)  # a step may begin in the middle of a slice
        return most_ns > _MAX_SHARE_OF_ONE_STEP * sum(halves)

    def _period(self, kind: str) -> int | None:
        """In every which step that comes for which findings of a kind are."""
        by_step: defaultdict[int, float] = defaultdict(float)
        stops = self.stops(_STOPS_OF_KINDS.get(kind, "")).select("step", "total_ns").drop_nulls()
        times = list(stops.iter_rows())
        for name in _COLUMNS_OF_KINDS.get(kind, ()):
            times += [(row.step, getattr(row, name) or 0) for row in self._steps]
        for step, time_ns in times:
            by_step[step] += time_ns
        return period_of(by_step, self.num_steps)

    # -- what a step would gain

    def saving_ns(self, fix: Fix) -> float | None:
        """What a step gains by it. None where replays are not to be trusted."""
        return self.report.gained_ns(fix.saved_ns(self.graph)) if self.is_replayed else None

    def _held_ns(self, fix: Fix | None, saving_ns: float | None) -> float:
        """What a step would gain more if it did not have to wait for its loader then; 0 if that is little."""
        if fix is None or saving_ns is None or self.graph.with_fast_loaders is self.graph:
            return 0.0
        held_ns = (self.report.gained_ns(fix.saved_ns(self.graph.with_fast_loaders)) or 0.0) - saving_ns
        return held_ns if held_ns > _SAME_SHARE * self.step_ns else 0.0

    def _most_ns(self, fix: Fix | None, saving_ns: float | None, held_ns: float) -> float | None:
        """What a step gains at most, where the recording does not tell exactly; None where it does. Of what a loader
        holds back, batches that were made ahead give a little for some steps."""
        if fix is None or saving_ns is None:
            return None
        most_ns = saving_ns + held_ns
        if self.graph.has_guesses or fix.most_variant or fix.beyond:
            most_ns = max(most_ns, self.report.gained_ns(fix.most_saved_ns(self.graph)) or 0.0)
        return most_ns if most_ns > saving_ns + _SAME_SHARE * self.step_ns else None

    def most_of_late_ns(self, fix: Fix, saving_ns: float | None) -> tuple[float | None, str]:
        """What a step gains at most if nobody waits for late ranks, and a sentence on it, if loaders hold it back."""
        held_ns = self._held_ns(fix, saving_ns)
        most_ns = saving_ns + held_ns if saving_ns is not None and held_ns else None
        return most_ns, self._on_most(most_ns, held_ns, fix)

    def _on_most(self, most_ns: float | None, held_ns: float, fix: Fix | None) -> str:
        is_of_pauses = fix is not None and fix.beyond and not (held_ns or fix.most_variant or self.graph.has_guesses)
        sentence = _ON_PAUSES if is_of_pauses else _ON_MOST
        return (_ON_HELD if held_ns else "") + (sentence.format(100 * most_ns / self.step_ns) if most_ns else "")

    def fixes_of(self, findings: Iterable[Finding]) -> dict[str, Fix]:
        """Return, by finding id, the replay changes of those findings that have a saving."""
        is_saved = {finding.id for finding in findings if finding.saving_ns_per_step is not None}
        return {finding_id: fix for finding_id, fix in self._fixes.items() if finding_id in is_saved}

    def keep_fix(self, finding: Finding, fix: Fix | None) -> Finding:
        """The finding, whose fix is kept for those who ask what it would change."""
        if fix is not None:
            self._fixes[finding.id] = fix
        return finding

    @cached_property
    def _stops(self) -> pl.DataFrame:
        is_recurring = pl.col("step").drop_nulls().n_unique().over("kind", "name") >= FEWEST_RECURRING
        stops = pl.concat([one.stops.with_columns(is_recurring=is_recurring) for one in self._own_signs])
        return stops.sort("total_ns", descending=True)

    @cached_property
    def _sampled(self) -> pl.DataFrame:
        return pl.concat([_without_lines_in_every_sample(one) for one in self._own_signs])

    @cached_property
    def _own_signs(self) -> list[Signs]:
        """Those of ranks that are not late."""
        return [one for one in self.signs if one.rank not in self.late_ranks]

    @cached_property
    def _patients(self) -> pl.DataFrame:
        """The edges of ranks that are not late."""
        return self.graph.edges.filter(~is_of_ranks(self.late_ranks))


def _without_lines_in_every_sample(signs: Signs) -> pl.DataFrame:
    """Return the samples; a line that is in every sample is moved from ``line`` to ``every_sample``."""
    is_in_every = pl.col("line").is_in(list(signs.lines_in_every_sample)).fill_null(False)
    return signs.sampled.with_columns(
        line=pl.when(~is_in_every).then("line"), every_sample=pl.when(is_in_every).then("line")
    )


def _where(
    stops: pl.DataFrame, sampled: pl.DataFrame, *, with_steps: bool = False, lines_by: str = "total_ns"
) -> Where:
    """The places of signs. Lines that were sampled say more than those where recorded functions begin."""
    steps = tuple(stops["step"].drop_nulls().unique().sort().to_list()) if with_steps else ()
    lines = _sampled_lines(sampled) or _named(stops, "line", lines_by)
    return Where(steps=steps, spans=_named(stops, "name"), lines=lines)


def _sampled_lines(sampled: pl.DataFrame) -> tuple[str, ...]:
    """The lines that took the most, of those that are no chance."""
    if not len(sampled):
        return ()
    hits = sampled.drop_nulls("line").group_by("line").agg(pl.col("num_samples").sum(), pl.col("step").n_unique())
    num_steps = sampled["step"].n_unique()
    sure = [line for line, num_samples, steps in hits.iter_rows() if is_line_sure(num_samples, steps, num_steps)]
    return _named(sampled.with_columns(line=pl.when(pl.col("line").is_in(sure)).then("line")), "line")


def _named(stops: pl.DataFrame, column: str, weight: str = "total_ns") -> tuple[str, ...]:
    """The names, or lines, of the signs that took the most, and more than a small part of all."""
    if not stops[column].count():
        return ()
    by_name = stops.drop_nulls(column).group_by(column).agg(pl.col(weight).sum())
    by_name = by_name.filter(pl.col(weight) >= _NAMED_SHARE * pl.lit(stops[weight].sum()))
    return tuple(by_name.sort(weight, column, descending=[True, False])[column].head(MOST_NAMED).to_list())
