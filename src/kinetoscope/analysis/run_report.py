"""The report on a run: all its rows, and its replay."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from types import UnionType
from typing import Any, get_args, get_type_hints

import msgspec
import polars as pl

from kinetoscope.analysis.cpu.operators import OperatorRow
from kinetoscope.analysis.findings.finding import Finding
from kinetoscope.analysis.findings.savings import SavingEstimator
from kinetoscope.analysis.gpu.kernels import KernelRow, TensorCores
from kinetoscope.analysis.memory.memory import MemoryRow
from kinetoscope.analysis.modules.module_rows import ModuleRow
from kinetoscope.analysis.notebook_repr import NotebookRepr
from kinetoscope.analysis.plain_data import to_dicts
from kinetoscope.analysis.ranks.collectives import ClockShift, CollectiveRow
from kinetoscope.analysis.ranks.contention import Contention
from kinetoscope.analysis.ranks.ranks import RankRow
from kinetoscope.analysis.ranks.stragglers import StragglerRow
from kinetoscope.analysis.replay.critical_path import CriticalSpan, critical_path
from kinetoscope.analysis.replay.replay import Change, ReplayGraph
from kinetoscope.analysis.steps.all_steps import AllSteps
from kinetoscope.analysis.steps.call_times_by_step import StepTimes
from kinetoscope.analysis.steps.least_disturbed_steps import LeastDisturbedSteps
from kinetoscope.analysis.steps.slow_steps import SlowStepRow
from kinetoscope.analysis.steps.step_work import ComputeRates
from kinetoscope.analysis.steps.steps import StepRow
from kinetoscope.analysis.steps.time_breakdown import StepBreakdown
from kinetoscope.core.text.wording import escape_json, format_count, sanitize
from kinetoscope.errors import SettingsError
from kinetoscope.frames.display import first_items

SCHEMA = 2
_MAX_SHOWN_FINDINGS = 5
TABLES = ("ranks", "steps", "collectives", "stragglers", "operators", "kernels", "memory", "findings")
"""The fields of a report that have rows."""


class RunFacts(ComputeRates, TensorCores):
    """Facts on a run as a whole.

    ``name`` is the recorded name, ``title`` the heading of a report: of a single trace its file, else the name, or the
    folder of the run. ``ranks`` are those with traces, ``notes`` sentences. ``state`` is ``finished``, ``killed`` or
    ``recording``, or None if unknown. ``missing`` has sentences on the missing data of a run that was killed or has not
    ended: ranks, and steps of ranks.

    ``step_ns`` is the step time, CPU-limited or GPU-limited, ``parts`` its breakdown, and ``bound_by`` ``data``,
    ``host``, ``compute``, ``communication``, ``ranks`` or ``unknown``. ``flops_per_step``, ``flops_per_s`` and ``mfu``
    are means over ranks; ``samples_per_s`` and ``tokens_per_s`` are as a rank's loop counts them, on average, None
    where it does not. ``all_steps`` has the facts on all steps, recorded or not; None without a pulse. ``slow_steps``
    are those that were kept with ``profile(slow_steps=True)``; nothing else here depends on them.

    ``hints`` are sentences where no fault was found; they have no saving. ``contention`` is the use of the machine's
    CPU time while the run was recorded, None where that was not recorded. ``least_disturbed_steps`` is None without
    contention.
    """

    name: str | None
    title: str | None
    state: str | None
    world_size: int | None
    ranks: list[int]
    hosts: list[str]
    num_steps: int
    step_ns: float | None
    bound_by: str
    parts: StepBreakdown | None
    samples_per_s: float | None
    tokens_per_s: float | None
    all_steps: AllSteps | None
    slow_steps: list[SlowStepRow]
    missing: list[str]
    notes: list[str]
    hints: list[str]
    contention: Contention | None
    least_disturbed_steps: LeastDisturbedSteps | None


@dataclass(frozen=True, kw_only=True)
class ReportRows:
    """The part of a report that can be cached.

    ``is_judged`` is true if faults were searched for: not in traces without steps, nor where ``why_unjudged`` has
    reasons, which are also the first notes of the run.
    """

    run: RunFacts
    ranks: list[RankRow]
    steps: list[StepRow]
    collectives: list[CollectiveRow]
    stragglers: list[StragglerRow]
    operators: list[OperatorRow]
    kernels: list[KernelRow]
    memory: list[MemoryRow]
    findings: list[Finding]
    modules: list[ModuleRow] = field(default_factory=list)
    is_judged: bool = True
    why_unjudged: list[str] = field(default_factory=list)
    by_step: Sequence[StepTimes] = ()
    clock_shifts: dict[int, ClockShift] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RunReport(ReportRows, NotebookRepr):
    """The report on a run. ``to_json()`` is the output of ``kinetoscope summary PATH --json``.

    The output lacks these fields: ``by_step``, for `compare`, whose times are in the order of the distinct numbers of
    ``steps``; ``unrecorded_ns``, the durations of steps that were not recorded; ``usual_ns``, those of recorded steps
    too; ``folder``, the absolute path of the run's folder, "" for traces without one; ``clock_shifts``, the offsets by
    which the clocks of ranks were moved so that collectives end together; ``is_judged`` and ``why_unjudged``.
    """

    unrecorded_ns: Sequence[float] = ()
    usual_ns: Sequence[float] = ()
    folder: str = field(default="", repr=False, compare=False)
    build_graph: Callable[[], ReplayGraph | None] = field(default=lambda: None, repr=False, compare=False)

    def __repr__(self) -> str:
        run, counts = self.run, ", ".join(f"{name} {len(getattr(self, name)):,}" for name in TABLES)
        ranks = f"{len(run['ranks'])} of {run['world_size'] or 'unknown'} ranks"
        lines = [f"<kinetoscope.RunReport of {format_run_name(run)}: {ranks}, {run['num_steps']:,} steps"]
        lines += [f"  {notice}"] if (notice := unfinished_notice(run)) else []
        lines += [f"  rows      {counts}", *(f"  note      {sanitize(note)}" for note in run["notes"])]
        findings = (f"  finding   {sanitize(finding.title)}" for finding in self.findings)
        return "\n".join(filter(None, [*lines, first_items(findings, len(self.findings), _MAX_SHOWN_FINDINGS)])) + ">"

    @cached_property
    def graph(self) -> ReplayGraph | None:
        """The replay graph of the run. A report from the cache reads the traces for it, once."""
        return self.build_graph()

    @cached_property
    def _savings(self) -> SavingEstimator | None:
        num_steps, step_ns = self.run["num_steps"], self.run["step_ns"]
        if self.graph is None or not num_steps or step_ns is None:
            return None
        return SavingEstimator(self.graph, self.steps, num_steps, step_ns)

    def saving_ns_per_step(self, change: Change) -> float | None:
        """Return the saving per step of a change in ns; None without a step, or where no replay is trusted."""
        return None if self._savings is None else self._savings.saving_of_change_ns(change)

    def saving_of_fix(self, number: int) -> float | None:
        """Return the saving per step of a finding in ns, by its replay; None for a finding without a saving.

        Args:
            number: number of the finding, from 1 on.

        Raises:
            SettingsError: if no finding has the number.
        """
        if not 1 <= number <= len(self.findings):
            known = format_count(len(self.findings), "finding") if self.findings else "no finding"
            raise SettingsError(f"There is no finding {number}: the run has {known}.")
        fix = self.findings[number - 1].fix
        return None if fix is None or self._savings is None else self._savings.saving_ns(fix)

    def critical_path(self, step: int) -> list[CriticalSpan]:
        """Return the critical path of a step over all ranks: spans, one after the other.

        It lasts from the first start of the step on any rank to that of the next step, or to the last end.
        """
        begins = [row.begin_ns for row in self.steps if row.step == step]
        if not begins or self.graph is None:
            return []
        later = [row.begin_ns for row in self.steps if row.step > step]
        return critical_path(self.graph, min(begins), min(later, default=None))

    def frame(self, table: str) -> pl.DataFrame:
        """Return the rows of a table as a polars frame, as in ``report.frame("steps")``.

        Pairs of name and number are lists of structs with ``name`` and ``value``.

        Args:
            table: one of `TABLES`.

        Raises:
            SettingsError: if there is no such table.
        """
        if table not in TABLES:
            raise SettingsError(f"A report has no table {table!r}. Its tables are {', '.join(TABLES)}.")
        (row_type,) = get_args(get_type_hints(RunReport)[table])
        return _frame(row_type, getattr(self, table))

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data."""
        rows = {name: to_dicts(getattr(self, name)) for name in TABLES}
        modules = {"modules": to_dicts(self.modules)} if self.modules else {}  # only where they were recorded
        return {"schema": SCHEMA, "run": msgspec.to_builtins(self.run), **rows, **modules}

    def to_json(self) -> str:
        """Return the report as JSON."""
        return escape_json(msgspec.json.encode(self.to_dict()).decode())


_ENDINGS = {
    "killed": "This run was killed: its unsaved data is missing.",
    "recording": "This run has not ended: the summary shows the data written so far.",
}


def unfinished_notice(run: RunFacts) -> str | None:
    """Return the notice on a run that was killed, or that still runs; None for others."""
    notice = _ENDINGS.get(run["state"] or "")
    return None if notice is None else " ".join([notice, *run["missing"]])


def format_run_name(run: RunFacts) -> str:
    """Return the name of a run in a line of text."""
    return sanitize(run["title"]) if run["title"] else "a run without a name"


def _frame(row_type: type, rows: Sequence[Any]) -> pl.DataFrame:
    """Return the rows of one type as a frame, with all columns even without a row."""
    names = [name for name in row_type.__annotations__ if name != "fix"]  # no data for other programs
    columns = {name: [_plain(getattr(row, name)) for row in rows] for name in names}
    return pl.DataFrame([pl.Series(name, values, dtype=_dtype(row_type, name)) for name, values in columns.items()])


def _dtype(row_type: type, name: str) -> "Any | None":
    """Return the dtype of a column of plain values, which may all be None; None where polars infers it."""
    hint = get_type_hints(row_type)[name]
    kinds = set(get_args(hint)) - {type(None)} if isinstance(hint, UnionType) else {hint}
    plain = {int: pl.Int64, float: pl.Float64, str: pl.String, bool: pl.Boolean}
    return plain.get(*kinds) if len(kinds) == 1 else None


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if not isinstance(value, tuple):
        return value
    return [{"name": one[0], "value": one[1]} if isinstance(one, tuple) else _plain(one) for one in value]
