"""Checks that `--json`, the screen, the page and the notebook of a report have the same numbers."""

import io
import json
import re
from html.parser import HTMLParser
from itertools import takewhile

import pytest
from rich.console import Console

from kinetoscope.report.labels import CPU_FELL_BEHIND, DEVICE_PART_LABELS, HOST_PART_LABELS, SIDE_LABELS
from kinetoscope.report.page.build import build_page
from kinetoscope.report.terminal.screen import print_trimmed
from kinetoscope.report.terminal.summary import render_summary

_MS = 1e6
_GLYPHS = "█▓▒░"


def assert_consistent_report(report):
    """Everything that shows a report shows the numbers of its JSON, and each breakdown adds up to the step."""
    run = json.loads(report.to_json())["run"]
    _assert_adds_up(run["step_ns"], run["parts"])
    for row in report.ranks:
        _assert_adds_up(row.step_ns, row.parts)
    _assert_screen(report, run)
    _assert_page(report, run)
    _assert_notebook(report, run)


def _assert_adds_up(step_ns, parts):
    if step_ns is None:
        assert parts is None
        return
    for breakdown in (parts["host"], parts["device"]):
        if breakdown is not None:
            known = [time_ns for time_ns in breakdown.values() if time_ns is not None]
            assert sum(known) == step_ns


# -- a screen


def screen(report, width=400):
    """Return the lines that a terminal shows with all details."""
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False)
    print_trimmed(console, render_summary(report, width, with_details=True))
    return out.getvalue().splitlines()


def _assert_screen(report, run):
    lines = screen(report)
    if run["step_ns"] is None:
        assert "ms/step" not in lines[0]
        return
    step = re.search(r" (?:steps?|profiled), ([\d.,]+) ms/step", lines[0])
    assert _is_rounded(step[1], run["step_ns"] / _MS)
    assert (run["state"] == "killed") == any(line.startswith("! This run was killed") for line in lines)
    for name, words in (("host", HOST_PART_LABELS), ("device", DEVICE_PART_LABELS)):
        _assert_breakdown(lines, name, words, run["parts"][name])
    title = lines.index("Step time by rank, ms/step")
    names = re.split(r"\s{2,}", lines[title + 1].strip())
    for line, row in zip(lines[title + 2 :], {row.rank: row for row in report.ranks}.values(), strict=False):
        cells = re.split(r"\s{2,}", line.strip()) if row.rank is not None else ["", *re.split(r"\s{2,}", line.strip())]
        assert _is_rounded(cells[names.index("step")], row.step_ns / _MS)


def _assert_breakdown(lines, name, words, breakdown):
    """Assert that a bar and its legend show each part of at least half a microsecond."""
    bars = [index for index, line in enumerate(lines) if re.match(f"{SIDE_LABELS[name]:<5}[{_GLYPHS}]+$", line)]
    assert len(bars) == (breakdown is not None)
    if breakdown is None:
        return
    legend = "  ".join(takewhile(lambda line: line.startswith("     "), lines[bars[0] + 1 :]))
    for part, label in words.items():
        value = breakdown[part]
        label = CPU_FELL_BEHIND if part == "ahead_ns" and (value or 0) < 0 else label
        found = re.search(rf"[{_GLYPHS}] {re.escape(label)} (-?[\d.,]*\d) ms", legend)
        assert (found is not None) == (abs(value or 0) >= 500), (label, legend)
        assert found is None or _is_rounded(found[1], value / _MS), (label, legend)


# -- a page and a notebook


def _assert_page(report, run):
    page = build_page(report, "0")
    assert page.report["run"] == run
    assert page.overview.savings == [_share(finding.saving_ns_per_step, run) for finding in report.findings]
    assert page.overview.costs == [_share(finding.cost_ns_per_step, run) for finding in report.findings]
    ended = [
        text for text in page.overview.warnings if text.startswith(("This run was killed", "This run has not ended"))
    ]
    assert bool(ended) == (run["state"] in ("killed", "recording"))
    assert [row["parts"] for row in page.report["ranks"]] == [row.parts for row in report.ranks]
    _assert_details_on_page(page, report, run)
    for breakdowns in filter(None, (page.steps, page.mean_steps)):
        parts = zip(*(_decoded(column) for column in breakdowns.host.values()), strict=True)
        for time_ns, values in zip(_decoded(breakdowns.times), parts, strict=True):
            assert abs(time_ns - sum(value or 0 for value in values)) <= len(breakdowns.host)
    if page.steps is not None:
        for time_ns, row in zip(_decoded(page.steps.times), report.steps, strict=True):
            assert time_ns >= row.duration_ns


def _assert_details_on_page(page, report, run):
    """The breakdowns and the sums of calls on the page are the report's, in the words of the screen. Those of ranks
    that stand out come first."""
    of_ranks = {row.rank: (row.rank, False, row.step_ns, row.parts) for row in report.ranks}
    expected = [(None, True, run["step_ns"], run["parts"]), *of_ranks.values()]
    expected = [one for one in expected if one[3] is not None]
    places = {one[:2]: index for index, one in enumerate(expected)}
    in_order = sorted(page.breakdowns, key=lambda one: places[one.rank, one.is_run])
    assert [(one.rank, one.is_run, one.step_ns) for one in in_order] == [one[:3] for one in expected]
    stand_out = [one.stands_out for one in page.breakdowns if not one.is_run]
    assert stand_out == sorted(stand_out, reverse=True)
    for shown, (_, _, step_ns, parts) in zip(in_order, expected, strict=True):
        assert (shown.device is None) == (parts["device"] is None)
        for side, breakdown in ((shown.host, parts["host"]), (shown.device or [], parts["device"] or {})):
            assert {part.part: part.time_ns for part in side} == breakdown
            assert [part.share for part in side] == [_share(part.time_ns, run | {"step_ns": step_ns}) for part in side]
            for part in side:
                label = page.part_labels[part.part]
                assert part.label == (CPU_FELL_BEHIND if part.part == "ahead_ns" and (part.time_ns or 0) < 0 else label)
    assert (page.tensor_core_sentence is None) == (run["tensor_core_share"] is None)
    assert page.tensor_core_sentence is None or page.tensor_core_sentence in screen(report)
    _assert_same_calls(page, report, screen(report))


def _assert_same_calls(page, report, lines):
    """Assert that a terminal's calls per step equal the page's."""
    num_steps = sum({row.rank: row.num_steps for row in report.ranks}.values())
    unit = "per step" if num_steps else "in all"
    fields = {"self ms": "self_ns", "total ms": "total_ns", "GPU ms": "device_ns"}
    for title, of in (("Operators", "operators"), ("Kernels and copies", "kernels")):
        rows = next((table.rows for table in page.call_tables if (table.of, table.by) == (of, "name")), [])
        if f"{title} {unit}" not in lines:
            assert not rows
            continue
        header, *shown = (re.split(r"\s{2,}", line.strip()) for line in lines[lines.index(f"{title} {unit}") + 1 :][:6])
        by_name = {row.name.removeprefix("void ").replace("at::native::", "", 1): row for row in rows}
        by_name |= {row.name: row for row in rows}
        known = [cells for cells in shown if cells[0] in by_name and len(cells) == len(header)]
        assert known or any("…" in cells[0] for cells in shown)
        for cells in known:
            row = by_name[cells[0]]
            assert _is_rounded(cells[-1], row.num_calls / (num_steps or 1))
            for name in fields.keys() & {*header}:
                field = "total_ns" if of == "kernels" else fields[name]
                if getattr(row, field) is not None:
                    assert _is_rounded(cells[header.index(name)], getattr(row, field) / (num_steps or 1) / _MS)


def _share(time_ns, run):
    return None if time_ns is None or not run["step_ns"] else time_ns / run["step_ns"]


def _decoded(column):
    """Return the numbers of a column of a time breakdown; None is unknown."""
    size = len(column)
    planes = [column.data[index * size : (index + 1) * size] for index in range(column.num_bytes)]
    written = [sum(byte << 8 * index for index, byte in enumerate(number)) for number in zip(*planes, strict=True)]
    return [number - 1 if number else None for number in written]


class _Cell(HTMLParser):
    """The texts of a notebook's cell."""

    def __init__(self, html):
        super().__init__()
        self.texts = []
        self.feed(html)

    def handle_data(self, data):
        self.texts.append(data)


def _assert_notebook(report, run):
    """It has the first line of the screen, and the breakdown that bounds the run."""
    texts, on_screen = _Cell(report._repr_html_()).texts, screen(report)
    assert texts[0] == on_screen[0]
    assert texts[1].startswith("This run was killed") == (run["state"] == "killed")
    if run["parts"] is None:
        return
    has_devices = run["parts"]["device"] is not None and run["bound_by"] in ("compute", "communication")
    name, words = ("device", DEVICE_PART_LABELS) if has_devices else ("host", HOST_PART_LABELS)
    listed = texts[texts.index(f"{SIDE_LABELS[name]}, ms/step") + 1 :]
    for part, time_ns in run["parts"][name].items():
        label = CPU_FELL_BEHIND if part == "ahead_ns" and (time_ns or 0) < 0 else words[part]
        found = [re.fullmatch(rf"{re.escape(label)} (-?[\d.,]+) \((<1|-?[\d]+)%\)", text) for text in listed]
        numbers = [match for match in found if match is not None]
        assert len(numbers) == (abs(time_ns or 0) >= 500), (label, listed)
        assert all(_is_rounded(match[1], time_ns / _MS) for match in numbers)
        share = None if time_ns is None else _share(time_ns, run)
        assert all(0 < share < 0.005 if match[2] == "<1" else _is_rounded(match[2], 100 * share) for match in numbers)


def _is_rounded(text, value):
    """Return whether a string is a number rounded to its own digits."""
    num_decimals = len(text.partition(".")[2])
    return float(text.replace(",", "")) == pytest.approx(value, rel=0, abs=0.501 * 10**-num_decimals)
