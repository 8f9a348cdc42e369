"""The tables of docs/predicted-vs-measured.md: each measured program replaces its row, and the others stay."""

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

DOCUMENT = Path(__file__).parents[3] / "docs" / "predicted-vs-measured.md"
Section = Literal["faults", "healthy", "programs"]


def write_row(section: Section, name: str, cells: Sequence[str], order: Sequence[str], into: Path = DOCUMENT) -> None:
    """Write the row of one program, with date and machine, and print it. ``order`` has the names of all programs."""
    start, end = f"<!-- {section} begin -->\n", f"<!-- {section} end -->"
    head, _, rest = into.read_text(encoding="utf-8").partition(start)
    table, _, tail = rest.partition(end)
    heading, line, *rows = table.splitlines()
    by_name = {row.split("|")[1].strip(" `"): row for row in rows}
    by_name[name] = _format_row([f"`{name}`", *cells, time.strftime("%Y-%m-%d"), describe_machine()])
    lines = [heading, line, *_sort_rows(by_name, order)]
    into.write_text(head + start + "\n".join(lines) + "\n" + end + tail, encoding="utf-8")
    print(f"\n{by_name[name]}")


def _sort_rows(by_name: Mapping[str, str], order: Sequence[str]) -> list[str]:
    """Return the rows in this order, without those of programs that are gone."""
    return [by_name[name] for name in order if name in by_name]


def _format_row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"


def describe_machine() -> str:
    """Return the number of cores and the CPU models of this machine."""
    models = {
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    }
    return f"{os.cpu_count()} cores of {' and '.join(sorted(models)) or 'an unnamed processor'}"


def format_optional_ms(time_ns: float | None) -> str:
    """Return milliseconds with one decimal; "" if unknown."""
    return "" if time_ns is None else f"{time_ns / 1e6:.1f}"
