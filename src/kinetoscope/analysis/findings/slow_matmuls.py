"""Diagnosis of kernels that would be faster with half the bits."""

import re
from collections.abc import Iterable

from kinetoscope.analysis.findings.diagnosis import Diagnosis
from kinetoscope.analysis.findings.evidence.run import Evidence
from kinetoscope.analysis.findings.finding import MAX_NAMED, Where
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.findings.titles import add_detail
from kinetoscope.analysis.gpu.kernels import KernelRow
from kinetoscope.analysis.replay.replay import Change
from kinetoscope.core.text.wording import format_ms

_MIN_SPEEDUP = 2.0
"""Minimum speedup of matmuls with half the bits."""


def find_kernels(rows: Iterable[KernelRow], pattern: str, *, unless: str | None = None) -> list[KernelRow]:
    """Return the compute kernels whose names match a pattern, but not ``unless``."""
    found = [row for row in rows if row.kind == "compute" and re.search(pattern, row.name)]
    return [row for row in found if unless is None or not re.search(unless, row.name)]


def diagnose_slow_matmuls(
    evidence: Evidence, rows: list[KernelRow], title: str, advice: str, *, detail: str = "", lines: tuple[str, ...] = ()
) -> Diagnosis:
    """Return the diagnosis of kernels, with a detail of the title, and the lines that introduce their type."""
    num_steps = max(1, len(evidence.rows.steps))
    kernels_ns = sum(row.total_ns for row in rows) / num_steps
    names = [row.name for row in rows]
    return Diagnosis(
        title=lambda cost_ns: add_detail(f"{title}: {format_ms(cost_ns)} ms/step", detail),
        advice=advice,
        cost_ns=kernels_ns,
        fix=Fix(Change(faster=dict.fromkeys(names, _MIN_SPEEDUP))),
        where=Where(spans=tuple(names[:MAX_NAMED]), lines=lines, modules=evidence.modules.of_kernels(names)),
        evidence={"kernels_ns": kernels_ns, "num_calls": sum(row.num_calls for row in rows) / num_steps},
        is_on_gpu=True,
    )
