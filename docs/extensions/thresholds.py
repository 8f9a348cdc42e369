"""Page of the thresholds of findings: their values come from the code, and the rest from ``thresholds.txt``."""

import importlib
import re
from pathlib import Path

RULES = "kinetoscope.analysis"
"""The package of the modules that name the thresholds."""

FACTORS = {"us": 1e-3, "ms": 1e-6, "%": 100.0}
"""Factors from the code's unit (ns, or a share of 1) to that of the page, by the first word of the page's unit."""

ROWS = Path(__file__).with_suffix(".txt")
"""A row per threshold, by section: module and constant, unit, what it decides, and where its value comes from."""

NOT_THRESHOLDS = {
    "evidence.window._MAX_COUNTER",
    "evidence.window_stalls._MAX_PAUSES",
    "finding.MAX_NAMED",
    "finding._ID_DIGITS",
    "finding._MAX_RANKS_IN_ID",
    "straggler_groups._MAX_LATE_ONCE",
    "straggler_groups._MAX_RANKS_TO_SPARE",
    "straggler_groups._MAX_ROUNDS",
    "rules.exposed_copy._INSTANT_SPEEDUP",
    "rules.host_bound._MAX_NAME_LENGTH",
    "rules.recompilation._MAX_FUNCTION_LENGTH",
    "rules.recompilation._MAX_GUARD_LENGTH",
    "titles.MAX_TITLE",
}
"""Numbers of the package of findings that limit texts and work, and decide on no finding."""

INTRODUCTION = """\
# Thresholds of findings

Numbers that decide whether a finding is reported, its confidence and its advice. The values are read from the code when
this page is built. "Set by" is where a value comes from:

- **contract**: part of the definition of what is reported; it changes with a new version of the schema only.
- **measured**: an experiment, which the row names.
- **derived** or **limit**: follows from another number, from the operating system, from PyTorch or from the GPU.
- **judgement**: chosen by the authors. No experiment isolates it: only the [score](../score.md) of simulated runs with
  known faults covers it.

Tests in `tests/support/synthetic_evidence` draw evidence on both sides of each value. If a value is halved or
doubled in the code, a test fails.
"""


def render_thresholds() -> str:
    """Return the page in Markdown."""
    parts = [INTRODUCTION]
    for title, rows in read_sections().items():
        lines = ["| threshold | value | unit | decides | set by |", "|---|---|---|---|---|"]
        for name, unit, decides, origin in rows:
            module, constant = name.rsplit(".", 1)
            shown = f"`{module.rpartition('.')[2]}.{constant}`"
            lines.append(f"| {shown} | {format_value(value_of(name), unit)} | {unit} | {decides} | {origin} |")
        table = "\n".join(lines)
        parts.append(f"## {title}\n\n```{{container}} thresholds\n{table}\n```\n")
    return "\n".join(parts)


def read_sections() -> dict[str, list[list[str]]]:
    """Return the rows of each section, as lists of cells."""
    _, *sections = re.split(r"^## (.*)\n", ROWS.read_text(encoding="utf-8"), flags=re.MULTILINE)
    named = zip(sections[::2], sections[1::2], strict=True)
    return {title: [row.split(" | ") for row in rows.strip().splitlines()] for title, rows in named}


def value_of(name: str) -> float:
    """Return the value of a constant in the code."""
    module, constant = name.rsplit(".", 1)
    return getattr(importlib.import_module(f"{RULES}.{module}"), constant)


def format_value(value: float, unit: str) -> str:
    """Return a value in the page's unit."""
    factor = FACTORS.get(unit.partition(" ")[0], 1.0)
    if unit.startswith("%") and value > 1:  # the code has it in percent
        factor = 1.0
    return f"{value * factor:,.4g}" if abs(value * factor) < 1000 else f"{value * factor:,.0f}"
