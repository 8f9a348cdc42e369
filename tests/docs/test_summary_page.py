"""docs/summary.md explains every column that `kinetoscope summary` can show, and no other."""

import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

import kinetoscope
from kinetoscope.report.terminal.summary import render_summary
from trainsim import simulate, stories

PAGE = (Path(__file__).parents[2] / "docs" / "summary.md").read_text(encoding="utf-8")
TITLES = {title: title for title in re.findall(r"^## (.*)$", PAGE, re.M)}
TITLES["Step time by rank"] += ", ms/step"
TITLES["Operators"] += " per step"
TITLES["Kernels and copies"] += " per step"
TITLES["Each GPU, from its first event to its last"] += ", in ms"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """A simulated run of two ranks with devices, in whose steps each part takes something, and a slow step."""
    folder = tmp_path_factory.mktemp("traces")
    simulate(replace(stories.VALUES_AND_LATE_RANK, num_ranks=2, num_steps=9, has_memory=True)).write(folder)
    report = kinetoscope.analyze(folder, cache=False)
    parts = [each_part(row.parts, sign * 1e6) for row, sign in zip(report.ranks, (1, -1), strict=True)]
    ranks = [replace(row, parts=its) for row, its in zip(report.ranks, parts, strict=True)]
    slow = {"step": 500, "ranks": [1], "rank": 1, "duration_ns": 9_000_000, "excess_ns": 8_000_000, "phase": "other"}
    slow |= {"line": None, "starved_ns": None, "is_machines": False, "every": None, "num_kept": 1}
    return replace(report, ranks=ranks, run=report.run | {"slow_steps": [slow]})


def each_part(parts, ahead_ns):
    host = {name: max(value or 0, 1e6) for name, value in parts["host"].items()} | {"ahead_ns": ahead_ns}
    return {"host": host, "device": {name: max(value or 0, 1e6) for name, value in parts["device"].items()}}


def shown(report):
    """Return the columns of each table that a wide terminal shows."""
    out = io.StringIO()
    Console(file=out, width=400, highlight=False).print(render_summary(report, 400))
    lines = [line.strip() for line in out.getvalue().splitlines()]
    of = {title: lines[lines.index(whole) + 1] for title, whole in TITLES.items() if whole in lines}
    return {title: re.split(r"\s{2,}", header) for title, header in of.items()}


def on_the_page(title):
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0].split("| column |")[1].split("\n\n")[0]
    return [name for row in re.findall(r"^\| (`.*?) \|", section, re.M) for name in re.findall("`(.*?)`", row)]


def test_the_page_has_every_column_of_every_table_in_their_order(report):
    tables = shown(report) | shown(replace(report, steps=[]))
    assert {*tables} == {title for title in TITLES if title != "A run without findings"}
    for title, columns in tables.items():
        assert on_the_page(title) == columns
