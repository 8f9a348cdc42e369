"""The output of a score: tables for a terminal, JSON, and a page of the docs."""

from collections.abc import Sequence
from typing import Any

from trainsim.score.judge import Verdict
from trainsim.score.scenario import Drawn, Scenario
from trainsim.score.tally import Count, KindRow, Row, sum_up, sum_up_kinds

_HEADER = ("scenario", "runs", "right", "false high", "savings", "missing", "healthy", "high")
_KIND_HEADER = ("kind", "precision", "recall", "savings")
_PLANTED_HEADER = ("scenario", "planted")
_GOAL_HEADER = ("goal", "result", "reached")
MIN_RIGHT_OF_SCENARIO = 0.80
MAX_FAILURES = 60


class Score:
    """The verdicts of all scenarios, and what is printed and written of them."""

    def __init__(self, scenarios: Sequence[Scenario], verdicts: Sequence[Verdict], *, commit: str, date: str) -> None:
        self._commit, self._date, self._verdicts = commit, date, verdicts
        self._scenarios = {scenario.name: scenario for scenario in scenarios}
        self._covered = [verdict for verdict in verdicts if not self._scenarios[verdict.scenario].rules_of]
        self._later = [verdict for verdict in verdicts if self._scenarios[verdict.scenario].rules_of]

    def format_text(self) -> str:
        """Format tables and failing runs for a terminal."""
        parts = [*self._tables(_format_text_table)]
        failed = [verdict for verdict in self._verdicts if verdict.is_failed]
        lines = [f"{format_command(verdict)}   # {explain(verdict)}" for verdict in failed[:MAX_FAILURES]]
        if len(failed) > MAX_FAILURES:
            lines.append(f"... and {len(failed) - MAX_FAILURES} more; all are in the JSON")
        return "\n\n".join([*parts, "\n".join(["failing runs", *lines]) if lines else "no run failed"])

    def format_page(self, template: str) -> str:
        """Fill the tables into a page of the docs."""
        planted = [(name, scenario.planted) for name, scenario in self._scenarios.items() if not scenario.rules_of]
        scenarios, *later, kinds, interval, goals = self._tables(_format_page_table)
        parts = {
            "commit": f"Commit `{self._commit}`, {self._date}.",
            "goals": f"{goals}\n\n{interval}",
            "scenarios": "\n\n".join([scenarios, *later]),
            "kinds": kinds,
            "planted": _format_page_table(_PLANTED_HEADER, planted),
        }
        for name, part in parts.items():
            template = template.replace(f"{{{name}}}", part)
        return template

    def to_dict(self) -> dict[str, Any]:
        """Return sums and verdicts as plain data."""
        return {
            "commit": self._commit,
            "date": self._date,
            "all": self._all().to_dict(),
            "scenarios": [row.to_dict() for row in (*self._rows(self._covered), *self._rows(self._later))],
            "kinds": [row.to_dict() for row in sum_up_kinds(self._verdicts)],
            "verdicts": [verdict.to_dict() for verdict in self._verdicts],
        }

    def _all(self) -> Row:
        return sum_up("all", self._covered)

    def _rows(self, verdicts: Sequence[Verdict]) -> list[Row]:
        names = dict.fromkeys(verdict.scenario for verdict in verdicts)
        return [sum_up(name, [verdict for verdict in verdicts if verdict.scenario == name]) for name in names]

    def _tables(self, table: Any) -> list[str]:
        covered = [_cells(row) for row in self._rows(self._covered)]
        overlap = [
            sum_up(name, [verdict for verdict in self._covered if verdict.has_overlap == has_overlap])
            for name, has_overlap in (("all, no overlap", False), ("all, with overlap", True))
        ]
        tables = [table(_HEADER, [*covered, *map(_cells, overlap), _cells(self._all())])]
        if self._later:
            later = [_cells(row) for row in self._rows(self._later)]
            tables += ["Scenarios whose rules are not written yet:", table(_HEADER, later)]
        kinds = [_kind_cells(row) for row in sum_up_kinds(self._covered)]
        row = self._all()
        interval = (
            f"Savings within 2 % of a step, or in the stated interval: {row.in_interval}. Errors: {row.num_errors}."
        )
        return [*tables, table(_KIND_HEADER, kinds), interval, table(_GOAL_HEADER, self._goals())]

    def _goals(self) -> list[tuple[str, str, str]]:
        """Return goal, result and whether it is reached."""
        row, rows = self._all(), self._rows(self._covered)
        below = [one.name for one in rows if one.right.share is not None and one.right.share < MIN_RIGHT_OF_SCENARIO]
        return [
            ("top findings right: 95 %", *_compare(row.right, 0.95)),
            ("no scenario below 80 %", ", ".join(below) or "none is", "no" if below else "yes"),
            ("no false finding of high confidence", str(row.num_false_high), "no" if row.num_false_high else "yes"),
            ("savings right: 95 %", *_compare(row.savings, 0.95)),
            ("healthy versions without a finding above low: all", *_compare(row.healthy, 1.0)),
            ("right top findings of 10 % or more that are high: 80 %", *_compare(row.sure, 0.80)),
        ]


def format_command(verdict: Verdict) -> str:
    """Format the command that repeats one run."""
    return f"make score SCENARIO={verdict.scenario} SEED={verdict.seed} RUNS=1 VERBOSE=1"


def explain(verdict: Verdict) -> str:
    """Explain in a few words why a run failed."""
    if verdict.error:
        return verdict.error.strip().splitlines()[-1]
    reasons = []
    if verdict.is_right is False:
        first = verdict.claims[0] if verdict.claims else None
        reasons.append(f"first: {first.kind} {list(first.ranks)} {first.confidence}" if first else "first: none")
    reasons += [f"false high: {claim}" for claim in verdict.false_high]
    for plant in verdict.plants:
        if plant.is_saving_right is False:
            off = "missing" if plant.off_share is None else f"off by {plant.off_share:+.1%}"
            reasons.append(f"saving of {plant.kind} {off} (rerun {plant.gain_share:.0%})")
    reasons += [f"healthy: {claim.kind} {claim.confidence}" for claim in verdict.healthy_claims or ()]
    return "; ".join(reasons)


def format_details(drawn: Drawn, verdict: Verdict) -> str:
    """Format settings, expectations and findings of one run."""
    lines = [f"{verdict.scenario}, seed {verdict.seed}", f"  {drawn.settings}"]
    lines += [f"  planted   {plant}" for plant in drawn.plants] or ["  planted   nothing"]
    lines += [f"  judged    {plant}" for plant in verdict.plants]
    for claim in verdict.claims:
        saving = "unknown" if claim.saving_share is None else f"{claim.saving_share:.1%}"
        truth = {True: "true", False: "FALSE", None: "not judged"}[claim.is_true]
        causes = f" ({', '.join(claim.causes)})" if claim.causes else ""
        lines.append(f"  finding   {claim.confidence}, saves {saving}, {truth}: {claim.kind}{causes}: {claim.title}")
    for claim in verdict.healthy_claims or ():
        lines.append(f"  healthy   {claim.confidence}: {claim.kind}: {claim.title}")
    right = {True: "right", False: "WRONG", None: "not judged: no plant matters"}[verdict.is_right]
    lines += [f"  top finding {right}", *verdict.error.splitlines()]
    if verdict.is_failed:
        lines.append(f"  failed: {explain(verdict)}")
    return "\n".join(lines)


def _compare(count: Count, goal: float) -> tuple[str, str]:
    if count.share is None:
        return "-", "-"
    return f"{count.share:.1%} ({count})", "yes" if count.share >= goal else "no"


def _cells(row: Row) -> tuple[str, ...]:
    return (
        row.name,
        str(row.num_runs),
        str(row.right),
        str(row.num_false_high),
        str(row.savings),
        str(row.num_missing_savings),
        str(row.healthy),
        str(row.sure),
    )


def _kind_cells(row: KindRow) -> tuple[str, ...]:
    return (row.kind, str(row.precision), str(row.recall), str(row.savings))


def _format_text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [
        "  ".join(cell.ljust(width) if not number else cell.rjust(width) for number, (cell, width) in enumerate(row))
        for row in (list(zip(cells, widths, strict=True)) for cells in (header, *rows))
    ]
    return "\n".join(lines)


def _format_page_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows))
