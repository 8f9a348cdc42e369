"""Sums over the calls of operators and kernels, for terminals and pages."""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from kinetoscope.analysis.cpu.operators import OperatorRow
from kinetoscope.analysis.gpu.kernels import KernelRow
from kinetoscope.analysis.ranks.ranks import RankRow
from kinetoscope.analysis.run_report import RunReport
from kinetoscope.analysis.steps.step_time import ratio_to_recorded_mean, timed_sequences
from kinetoscope.analysis.windows.optional_numbers import sum_or_none
from kinetoscope.pages.page_data import CallSums, CallTable, TopCalls
from kinetoscope.report.labels import find_limiting_side

OPERATORS, KERNELS = "operators", "kernels"
"""Names of the tables of all operators, and of all kernels and copies."""

_NUM_TOP = 5
_MIN_DIFFERENCE = 0.05
"""The steps without a step time matter if the mean of all recorded steps differs from it by more than this share."""

_Row = OperatorRow | KernelRow


def sum_operators_by_name(rows: Sequence[OperatorRow]) -> list[CallSums]:
    """Return the sums of operators by name, the largest self time first."""
    return _sum_by_key(rows, lambda row: row.name, lambda row: row.name)


def sum_kernels_by_name(rows: Sequence[KernelRow]) -> list[CallSums]:
    """Return the sums of kernels and copies by name and kind, the largest time first."""
    return _sum_by_key(rows, lambda row: (row.name, _get_kind(row)), lambda row: row.name)


def count_steps(ranks: Sequence[RankRow]) -> int:
    """Return the recorded steps of all ranks together; a rank has a row per device."""
    return sum({row.rank: row.num_steps for row in ranks}.values())


def find_top_calls(report: RunReport) -> TopCalls | None:
    """Return the kernels with most time where the GPU bounds the step, or no operators are known; else the operators.

    None without calls.
    """
    step_ns = report.run["step_ns"]
    num_steps = (count_steps(report.ranks) if step_ns else 0) or 1
    of = KERNELS if find_limiting_side(report.run) == "device" or not report.operators else OPERATORS
    rows = sum_kernels_by_name(report.kernels) if of == KERNELS else sum_operators_by_name(report.operators)
    if not rows:
        return None
    times_ns = [(row.total_ns if of == KERNELS else row.self_ns) / num_steps for row in rows[:_NUM_TOP]]
    return TopCalls(
        of=of,
        names=[row.name for row in rows[:_NUM_TOP]],
        times_ns=times_ns,
        shares=[time_ns / step_ns for time_ns in times_ns] if step_ns else [],
        num_calls=[row.num_calls / num_steps for row in rows[:_NUM_TOP]],
        basis=describe_untimed_steps(report),
    )


def describe_untimed_steps(report: RunReport) -> str:
    """Return a sentence on recorded steps that calls are counted in, but that the step time leaves out.

    "" where there are none, or where they are like the others.
    """
    step_ns = report.run["step_ns"]
    num_timed = sum(sequence.num_steps for sequence in timed_sequences(report.steps))
    if not step_ns or num_timed >= len(report.steps):
        return ""
    if abs(ratio_to_recorded_mean(report.steps, step_ns) - 1) < _MIN_DIFFERENCE:
        return ""
    return (
        "The step time leaves out the last step of a window, which has no end. Times of operators and kernels include "
        "it."
    )


def build_call_tables(
    operators: Sequence[OperatorRow], kernels: Sequence[KernelRow], recorded_steps_ns: float | None = None
) -> list[CallTable]:
    """Return the tables of calls of a page: by name, shapes, untyped name and kind; empty without calls.

    ``recorded_steps_ns``, the duration of the recorded steps of all ranks, is the whole of the shares of the step.
    """
    tables: list[CallTable] = []
    if operators:
        tables.append(CallTable(of=OPERATORS, by="name", rows=sum_operators_by_name(operators)))
    if any(row.shapes is not None for row in operators):
        by_shapes = _sum_by_key(operators, lambda row: (row.name, _get_shapes(row)), lambda row: row.name)
        tables.append(CallTable(of=OPERATORS, by="shapes", rows=by_shapes))
    if kernels:
        untyped = {row.name: strip_types(row.name) for row in kernels}
        by_untyped = _sum_by_key(
            kernels, lambda row: (untyped[row.name], _get_kind(row)), lambda row: untyped[row.name]
        )
        by_kind = _sum_by_key(kernels, _get_kind, lambda row: _get_kind(row) or "")
        tables.append(CallTable(of=KERNELS, by="name", rows=sum_kernels_by_name(kernels)))
        tables.append(CallTable(of=KERNELS, by="untyped", rows=by_untyped))
        tables.append(CallTable(of=KERNELS, by="kind", rows=by_kind))
    return [replace(table, rows=_add_shares(table.rows, recorded_steps_ns)) for table in tables]


def _add_shares(rows: Sequence[CallSums], recorded_steps_ns: float | None) -> list[CallSums]:
    """Add shares of the step: of the self time, which is the whole time of a kernel."""
    if not recorded_steps_ns:
        return list(rows)
    return [replace(row, share_of_step=row.self_ns / recorded_steps_ns) for row in rows]


def strip_types(name: str) -> str:
    """Return a C++ name without return type, template types and arguments.

    ``void at::fill<float>(int)`` becomes ``at::fill``.
    """
    depth, kept = 0, ""
    for character in name.replace("(anonymous namespace)", "{anonymous}"):
        if character == "(" and depth == 0:
            break
        depth += character == "<"
        kept += character if depth == 0 else ""
        depth = max(0, depth - (character == ">"))
    return kept.removeprefix("void ").strip() or name


def _get_kind(row: _Row) -> str | None:
    return getattr(row, "kind", None)


def _get_shapes(row: _Row | None) -> str | None:
    return getattr(row, "shapes", None)


def _sum_by_key(
    rows: Sequence[_Row], get_key: Callable[[_Row], Hashable], get_name: Callable[[_Row], str]
) -> list[CallSums]:
    """Return the sums of rows by key, the largest self time first."""
    groups: dict[Hashable, list[_Row]] = {}
    for row in rows:
        groups.setdefault(get_key(row), []).append(row)
    sums = [_add_up(rows_of_key, get_name(rows_of_key[0])) for rows_of_key in groups.values()]
    return sorted(sums, key=lambda row: (-row.self_ns, row.name))


def _add_up(rows: Sequence[_Row], name: str) -> CallSums:
    """Return the sum of rows."""
    only = rows[0] if len(rows) == 1 else None
    num_calls, total_ns = sum(row.num_calls for row in rows), sum(row.total_ns for row in rows)
    num_bytes = sum_or_none([getattr(row, "bytes", None) for row in rows])
    device_ns = sum_or_none([getattr(row, "device_ns", None) for row in rows])
    flops_per_s, mfu = _compute_rates(rows)
    return CallSums(
        name=name,
        kind=_get_kind(rows[0]),
        shapes=_get_shapes(only),
        num_rows=len(rows),
        num_calls=num_calls,
        total_ns=total_ns,
        self_ns=sum(row.self_ns for row in rows),
        mean_ns=total_ns / num_calls,
        p50_ns=only.p50_ns if only else getattr(rows[0], "name_p50_ns", None),
        p95_ns=only.p95_ns if only else getattr(rows[0], "name_p95_ns", None),
        max_ns=max(row.max_ns for row in rows),
        device_ns=None if device_ns is None else round(device_ns),
        flops=sum_or_none([row.flops for row in rows]),
        flops_per_s=flops_per_s,
        mfu=mfu,
        bytes=num_bytes,
        bytes_per_s=num_bytes / total_ns * 1e9 if num_bytes is not None and total_ns else None,
    )


def _compute_rates(rows: Sequence[_Row]) -> tuple[float | None, float | None]:
    """Return FLOP/s and the share of the peak of several rows, weighted by their times."""
    timed = [(row, row.flops / row.flops_per_s) for row in rows if row.flops and row.flops_per_s]
    whole_s = sum(time_s for _, time_s in timed)
    if not whole_s:
        return None, None
    shares = [row.mfu * time_s for row, time_s in timed if row.mfu is not None]
    rate = sum((row.flops_per_s or 0) * time_s for row, time_s in timed) / whole_s
    return rate, sum(shares) / whole_s if len(shares) == len(timed) else None
