"""The page of verdicts, in Markdown."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

Row = Sequence[str]

UNKNOWN = "\N{EN DASH}"

INTRODUCTION = """\
Measured with the [GPU kit](../tests/gpu/README.md); `python -m gpu_kit.judge` writes this part. Times are of one
machine; ratios carry over to others better.
"""


def render_verdicts(verdict: dict[str, Any]) -> str:
    """Return all verdicts, a section for each sort."""
    sections = (
        ("Machine", format_table(("what", "which"), _machine_rows(verdict))),
        ("Planted faults", _FAULTS_TEXT + format_table(_FAULT_HEADINGS, map(_fault_row, verdict["faults"]))),
        ("Healthy programs", format_table(_HEALTHY_HEADINGS, map(_healthy_row, verdict["healthy"]))),
        ("FLOPs and MFU", format_table(_MFU_HEADINGS, map(_mfu_row, verdict["mfu"]))),
        ("Counters of the GPU", format_table(("counter", "idle", "loaded"), _nvml_rows(verdict["nvml"] or {}))),
        ("Overhead", render_overhead(verdict)),
        ("Two processes", format_table(_RANKS_HEADINGS, map(_ranks_row, verdict["ranks"]))),
        ("Tests", format_table(("test", "outcome", "measured"), _test_rows(verdict["tests"]))),
        ("Perfetto's trace processor", format_table(("trace", "slices", "errors"), map(_trace_row, verdict["traces"]))),
        ("Skipped", _format_list(verdict["skipped"])),
        ("Failed", _format_list(verdict["failed"])),
    )
    return INTRODUCTION + "".join(f"\n## {title}\n\n{body}" for title, body in sections if body)


def render_overhead(verdict: dict[str, Any]) -> str:
    """Return the tables of overhead: per step, and of the first window of a process."""
    columns = [f"{row['target_ms']} ms" for row in verdict["overhead"]]
    names = list(verdict["overhead"][0]["median_ns"]) if columns else []
    rows = [[name, *(_format_slowdown(row, name) for row in verdict["overhead"])] for name in names]
    steps = format_table(("a step of about", *columns), rows)
    windows = verdict["first_windows"].items()
    headings = ("the first window of a process, ms", "to open", "a recorded step", "to close", "at the end")
    first = format_table(headings, ([name, *_window_cells(values)] for name, values in windows))
    return "\n".join(filter(None, (steps, first)))


def format_table(headings: Row, rows: Iterable[Row]) -> str:
    """Return a Markdown table; an empty string without rows."""
    found = list(rows)
    if not found:
        return ""
    lines = (headings, ["---"] * len(headings), *found)
    return "".join(f"| {' | '.join(_format_cell(cell) for cell in line)} |\n" for line in lines)


def _format_cell(content: str) -> str:
    return " ".join(content.replace("|", "\\|").split())


def _format_list(items: Iterable[str]) -> str:
    return "".join(f"- {' '.join(item.split())}\n" for item in items)


def _format_ms(value_ns: float | None) -> str:
    return UNKNOWN if value_ns is None else f"{value_ns / 1e6:,.2f}"


def _format_growth(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value / 2**20:,.1f} MiB/step"


def _format_percent(value: float | None) -> str:
    return UNKNOWN if value is None else f"{100 * value:.1f} %"


# -- sections


def _machine_rows(verdict: dict[str, Any]) -> Iterator[Row]:
    found = verdict["environment"]
    gpu, packages, system = found.get("gpu") or {}, found.get("packages") or {}, found.get("system") or {}
    torch, cupti = found.get("torch") or {}, found.get("cupti") or {}
    yield "GPU", f"{gpu['name']}, {gpu['memory_gib']} GiB" if gpu.get("name") else "none"
    yield "Driver", str((found.get("cuda_driver") or {}).get("proc") or (verdict["nvml"] or {}).get("driver", UNKNOWN))
    yield "CPU", f"{system.get('usable_cores', UNKNOWN)} cores of {system.get('cpu') or 'an unnamed CPU'}"
    yield "Python", str((found.get("python") or {}).get("version", UNKNOWN))
    yield (
        "torch",
        f"{torch.get('version', UNKNOWN)}; CUDA {torch.get('cuda', UNKNOWN)}; CUPTI {cupti.get('version', UNKNOWN)}",
    )
    yield "Kinetoscope", f"{packages.get('kinetoscope', UNKNOWN)}, commit {verdict['kit'].get('commit', UNKNOWN)}"
    yield "Date", verdict["date"]
    yield "Time of the kit", f"{verdict['elapsed_s']:.0f} s"


_FAULTS_TEXT = """\
Each program has one fault. *Faulty* and *fixed* are its steps without a profiler, in turns; *measured* is their
difference, and *predicted* the saving in the finding of the recorded run.

"""
_FAULT_HEADINGS = (
    "fault",
    "top finding",
    "as expected",
    "line",
    "faulty, ms",
    "fixed, ms",
    "measured, ms",
    "predicted, ms",
    "predicted / measured",
)


def _fault_row(row: dict[str, Any]) -> Row:
    findings = row.get("findings") or []
    first = f"{findings[0]['kind']} ({findings[0]['confidence']})" if findings else row.get("error") or "none"
    rank = row.get("rank_of_fault")
    missed = f"{row['expected'][0]} is " + (f"no. {rank}" if rank else "missing")
    expected = "yes" if row.get("is_named") else f"no: {missed}"
    measured, predicted = _format_ms(row.get("measured_ns")), _format_ms(row.get("predicted_ns"))
    if row.get("predicted_bytes_per_step") is not None:
        measured, predicted = (_format_growth(row.get(f"{which}_bytes_per_step")) for which in ("faulty", "predicted"))
    ratio = UNKNOWN if row.get("ratio") is None else f"{row['ratio']:.2f}"
    faulty = "out of memory" if row["faulty_is_out_of_memory"] else _format_ms(row["faulty_ns"])
    return (
        f"`{row['program']}`",
        first,
        expected,
        row.get("line") or UNKNOWN,
        faulty,
        _format_ms(row["fixed_ns"]),
        measured,
        predicted,
        ratio,
    )


_HEALTHY_HEADINGS = ("program", "step, ms", "limited by", "false alarms", "other findings")


def _healthy_row(row: dict[str, Any]) -> Row:
    others = [one["kind"] for one in row.get("findings") or [] if one["confidence"] != "high"]
    alarms = ", ".join(row.get("false_alarms") or []) or row.get("error") or "none"
    bound_by = str(row.get("bound_by", UNKNOWN))
    return f"`{row['program']}`", _format_ms(row.get("step_ns")), bound_by, alarms, ", ".join(others) or "none"


_MFU_HEADINGS = (
    "step",
    "formula, GFLOP",
    "torch's counter",
    "recorded",
    "measured, TFLOP/s",
    "measured MFU",
    "recorded MFU",
    "coverage",
)


def _mfu_row(row: dict[str, Any]) -> Row:
    counts = (row.get(name) for name in ("formula_flops", "counted_flops", "recorded_flops_per_step"))
    rate = row.get("measured_flops_per_s")
    return (
        row["name"],
        *(UNKNOWN if count is None else f"{count / 1e9:,.3f}" for count in counts),
        UNKNOWN if rate is None else f"{rate / 1e12:,.2f}",
        *(_format_percent(row.get(name)) for name in ("measured_mfu", "recorded_mfu", "recorded_mfu_coverage")),
    )


def _nvml_rows(values: dict[str, Any]) -> Iterator[Row]:
    idle, loaded = values.get("idle") or {}, values.get("loaded") or {}
    for name in dict.fromkeys((*idle, *loaded)):
        yield name, _format_counter(idle.get(name)), _format_counter(loaded.get(name))


def _format_counter(value: Any) -> str:
    if isinstance(value, dict):
        return str(value.get("error", value))
    return f"{value:.1f}" if isinstance(value, float) else "none" if value == [] else str(value)


def _format_slowdown(row: dict[str, Any], name: str) -> str:
    if name not in row["slow_down"]:
        return f"{row['median_ns'][name] / 1e6:.2f} ms"
    low, high = row["interval"][name]
    return f"{100 * row['slow_down'][name]:+.1f} % ({100 * low:+.1f} to {100 * high:+.1f})"


def _window_cells(values: dict[str, Any]) -> Iterator[str]:
    for name in ("open_ns", "recorded_step_ns", "close_ns", "exit_ns"):
        yield f"{values[name] / 1e6:,.1f}"


_RANKS_HEADINGS = ("backend", "ranks", "collectives", "planted straggler", "found stragglers", "NCCL")


def _ranks_row(row: dict[str, Any]) -> Row:
    found = ", ".join(map(str, row.get("straggler_ranks") or [])) or row.get("error") or "none"
    counts = (str(row.get(name, UNKNOWN)) for name in ("num_ranks", "num_collectives"))
    return str(row["backend"]), *counts, "rank 1, every third step", found, row.get("nccl_error") or UNKNOWN


def _test_rows(tests: dict[str, Any]) -> Iterator[Row]:
    for name, test in tests.items():
        facts = {key: value for key, value in test.items() if key not in ("outcome", "reason")}
        yield name.rpartition("::")[2], test["outcome"], "; ".join(f"{key} {value}" for key, value in facts.items())


def _trace_row(row: dict[str, Any]) -> Row:
    return row["trace"], str(row["num_slices"]), "none" if not row["errors"] else str(row["errors"])
