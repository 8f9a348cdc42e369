"""Gains of fixes that `kinetoscope try` has measured, to compare with the predicted savings of findings."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kinetoscope.analysis.plain_data import PlainData
from kinetoscope.formats.experiments import Experiment, ExperimentRow


@dataclass(frozen=True, kw_only=True)
class Measured(PlainData):
    """The best measured variant that may fix a finding. ``change`` is of the step time, with its 95 % interval."""

    variant: str
    change: float
    interval: tuple[float, float]
    verdict: str
    results: str | None


def find_measured(finding_id: str, kind: str, experiments: Sequence[Experiment]) -> Measured | None:
    """Return the measurement of the newest experiment with a variant for a finding; None if there is none.

    A variant that was named, and not chosen for a finding, counts for all findings that it may fix.
    """
    for experiment in reversed(experiments):
        rows = [row for row in experiment.rows if _is_for(row, finding_id, kind)]
        measured = sorted(_iterate_measured(rows), key=lambda one: one.change)
        if measured:
            return measured[0]
    return None


def _is_for(row: ExperimentRow, finding_id: str, kind: str) -> bool:
    return len(row.variants) == 1 and (finding_id in row.findings or (not row.findings and kind in row.kinds))


def _iterate_measured(rows: Iterable[ExperimentRow]) -> Iterable[Measured]:
    for row in rows:
        if row.change is not None and row.interval is not None:
            yield Measured(
                variant=row.label,
                change=row.change,
                interval=row.interval,
                verdict=row.verdict,
                results=row.results,
            )
