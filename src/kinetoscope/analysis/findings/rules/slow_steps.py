"""Rule for outlier steps, which took much longer than usual."""

from collections.abc import Iterator, Sequence

from kinetoscope.analysis.findings.confidence import confidence_without_replay
from kinetoscope.analysis.findings.evidence.pulse import PulseEvidence
from kinetoscope.analysis.findings.finding import MAX_NAMED, Finding, Where, build_finding
from kinetoscope.analysis.findings.rule import rule
from kinetoscope.analysis.findings.titles import add_detail
from kinetoscope.analysis.steps.periods import format_period
from kinetoscope.analysis.steps.slow_steps import PHASE_LABELS, SlowStepRow
from kinetoscope.core.text.wording import format_ms


@rule("slow_steps", reads=PulseEvidence)
def find_slow_steps(evidence: PulseEvidence) -> Iterator[Finding]:
    """Find the outlier steps that were kept, as one finding."""
    rows, num_steps = evidence.slow_steps, evidence.num_steps
    if not rows or not num_steps:
        return
    slowest, num_kept = rows[0], sum(row["num_kept"] for row in rows)
    cost_ns = sum(_times(row, num_steps) * row["excess_ns"] for row in rows) / num_steps
    num_machines = sum(row["is_machines"] for row in rows)
    yield build_finding(
        "slow_steps",
        _title(slowest, num_kept, num_steps),
        _advice(rows, num_machines),
        confidence=confidence_without_replay(cost_ns / evidence.mean_ns if evidence.mean_ns else 0.0),
        evidence={
            "num_slow_steps": num_kept,
            "num_contended_steps": num_machines,
            "max_excess_ns": slowest["excess_ns"],
            "num_with_line": sum(row["line"] is not None for row in rows),
        },
        where=Where(
            ranks=tuple(sorted({row["rank"] for row in rows})),
            steps=tuple(sorted(row["step"] for row in rows)),
            lines=tuple(dict.fromkeys(row["line"] for row in rows if row["line"] is not None))[:MAX_NAMED],
        ),
        cost_ns=cost_ns,
    )


def _times(row: SlowStepRow, num_steps: int) -> float:
    """Return the least number of such steps."""
    return row["num_kept"] if row["every"] is None else max(row["num_kept"], num_steps // row["every"])


def _title(slowest: SlowStepRow, num_kept: int, num_steps: int) -> str:
    longer = f"{format_ms(slowest['excess_ns'])} ms longer"
    if num_kept == 1:
        title = f"Outlier step: step {slowest['step']:,} took {longer} than usual"
    else:
        title = f"Outlier steps: {num_kept:,} of {num_steps:,} steps took up to {longer}"
    location = _location(slowest)
    return add_detail(title, f" ({location})" if location else "")


def _location(row: SlowStepRow) -> str:
    """Return the phase and the line with most of the excess; "" where both are unknown."""
    phase = PHASE_LABELS.get(row["phase"], "")
    return " at ".join(filter(None, [phase, row["line"]]))


def _advice(rows: Sequence[SlowStepRow], num_machines: int) -> str:
    periods = [(row, format_period(row["every"])) for row in rows if row["every"] is not None]
    regular = [f"{_location(row) or 'slow'}, recurs {period or 'every step'}" for row, period in periods]
    sentences = list[str]()
    if regular:
        recurring = "; ".join(regular[:MAX_NAMED])
        sentences.append(f"Do this work less often, or in the background: the fault recurs ({recurring}).")
    if num_machines:
        sentences.append(
            f"In {num_machines:,} of them the loop waited for a CPU for half of the excess or more: other processes, "
            "or too many threads, used the cores."
        )
    return " ".join([*sentences, "The run's folder has a trace of each, in slow_steps."])
