"""Result of `kinetoscope.compare`: the rows that got slower or larger between two runs, and by how much."""

from dataclasses import dataclass, field
from typing import Any

import msgspec
import polars as pl

from kinetoscope.analysis.findings.finding import Finding
from kinetoscope.analysis.notebook_repr import NotebookRepr
from kinetoscope.analysis.plain_data import PlainData
from kinetoscope.analysis.run_report import RunFacts, format_run_name
from kinetoscope.core.text.wording import escape_json, sanitize
from kinetoscope.frames.display import first_items

SCHEMA = 2
_MAX_LINES = 8
_FINDINGS = ("fixed_findings", "new_findings")


@dataclass(frozen=True, kw_only=True)
class ComparisonRow(PlainData, NotebookRepr):
    """One value that was measured in two runs, or in one of them. Times are per step, of the average rank.

    Attributes:
        kind: ``step``, ``phase``, ``operator`` (CPU self time), ``operator on device`` (kernels that it launched
            itself), ``kernel``, ``module`` or ``module on device`` (the same of a torch module, forward and backward,
            or of repeated ones: ``GPT.layers.0-11.mlp``), or ``memory``.
        unit: ``ns`` or ``bytes``.
        change: the change as a share of ``before``.
        interval: ends of the change; all rows together are within theirs with 95 % confidence.
        verdict: ``slower`` or ``faster`` (of memory: larger or smaller), ``same``, ``unsure``, ``new`` or ``gone``.
        is_worse: whether it got slower or larger by more than the threshold. A wait did only if the typical step may
            have got slower, too: where work gets quicker, waits get longer.
    """

    kind: str
    name: str
    shapes: str | None = None
    module: str | None = None
    before: float | None
    after: float | None
    unit: str
    change: float | None = None
    interval: tuple[float, float] | None = None
    verdict: str
    is_worse: bool = False

    def __repr__(self) -> str:
        return f"<kinetoscope.ComparisonRow {_line(self)}>"

    @property
    def is_typical_step(self) -> bool:
        """True for the row of the typical step."""
        return self.kind == "step" and self.name == "typical step"

    @property
    def difference(self) -> float:
        """The value after less the value before."""
        return (self.after or 0) - (self.before or 0)

    def grew_by(self, threshold: float) -> bool:
        """Return whether it got slower or larger by more than ``threshold``, beyond noise."""
        return self.verdict == "slower" and self.change is not None and self.change > threshold


@dataclass(frozen=True, kw_only=True)
class Comparison(PlainData, NotebookRepr):
    """Differences between two runs. Rows that got worse by more than ``threshold`` come first.

    Attributes:
        before: facts of the first run, as in `RunReport`.
        after: facts of the second run.
        more_steps: where the step is ``unsure``, about how many more steps of each run would decide; None if more steps
            would not.
        why_unsure: where the step is ``unsure``, a sentence on how to get a verdict; "" elsewhere.
        notes: sentences on what could not be compared, or only in part.
    """

    before: RunFacts
    after: RunFacts
    threshold: float
    rows: list[ComparisonRow]
    more_steps: int | None
    why_unsure: str = ""
    notes: list[str]
    fixed_findings: list[Finding] = field(default_factory=list)
    """Findings of ``before``, above low confidence, whose id ``after`` has not; most urgent first."""
    new_findings: list[Finding] = field(default_factory=list)
    """The same of ``after``. Both are empty where faults were not looked for in one of the runs."""

    def __repr__(self) -> str:
        before, after = format_run_name(self.before), format_run_name(self.after)
        lines = [f"<kinetoscope.Comparison of {before} and {after}: {len(self.rows)} rows, {len(self.worse)} got worse"]
        lines += [f"  note  {sanitize(note)}" for note in self.notes]
        return (
            "\n".join(
                filter(
                    None, [*lines, first_items((f"  {_line(row)}" for row in self.rows), len(self.rows), _MAX_LINES)]
                )
            )
            + ">"
        )

    @property
    def step(self) -> ComparisonRow | None:
        """The row of the typical step; None if one of the runs has no step."""
        return next((row for row in self.rows if row.is_typical_step), None)

    @property
    def worse(self) -> list[ComparisonRow]:
        """The rows that got slower or larger by more than the threshold."""
        return [row for row in self.rows if row.is_worse]

    @property
    def frame(self) -> pl.DataFrame:
        """The rows as a data frame."""
        return pl.DataFrame([row.to_dict() for row in self.rows], infer_schema_length=None)

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as plain data."""
        findings = {name: [found.to_dict() for found in getattr(self, name)] for name in _FINDINGS}
        return {"schema": SCHEMA, **super().to_dict(), **findings}

    def to_json(self) -> str:
        """Return the comparison as JSON, as ``kinetoscope diff A B --json`` prints it."""
        return escape_json(msgspec.json.encode(self.to_dict()).decode())


def _line(row: ComparisonRow) -> str:
    divisor, unit = (1_000_000, "ms") if row.unit == "ns" else (1, row.unit)
    before, after = (
        "unknown" if value is None else f"{value / divisor:,.4g} {unit}" for value in (row.before, row.after)
    )
    change = "" if row.change is None else f" ({row.change:+.1%})"
    return f"{row.verdict:6}  {row.kind} {sanitize(row.name)}: {before}, then {after}{change}"
