"""HTML of results in notebook cells: the same numbers as on a terminal, without a script."""

import io
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

import kinetoscope
from kinetoscope.analysis.findings.finding import Where, build_finding
from kinetoscope.analysis.replay.replay import Change
from kinetoscope.report.labels import PART_COLOURS, SIDE_LABELS
from kinetoscope.report.terminal.comparison_screen import render_comparison
from kinetoscope.report.terminal.summary import render_summary
from trainsim import Settings, simulate, stories

HOSTILE = [
    "<script>alert(1)</script>",
    "</bdi></div><img src=x onerror=alert(1)>",
    '"><b onclick=x>',
    "שלום \u202egpj",
    "",
]
STYLES = Path(__file__).parents[4] / "web" / "src" / "style.css"


class Cell(HTMLParser):
    """The texts of a cell, line by line. It has only elements and styles that notebooks leave in."""

    def __init__(self, html):
        super().__init__()
        self.text, self.open, self.tags, self.widths = "", [], set(), []
        self.feed(html)
        self.close()
        assert self.open == []
        assert self.tags <= {"div", "b", "bdi", "code", "ol", "li", "span", "table", "caption", "tr", "th", "td"}
        assert len(html) < 50_000

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.tags.add(tag)
        assert {name for name, _ in attrs} <= {"style"}
        for _, style in attrs:
            assert not re.search(r"(?<!background-)color|url|position|expression", style)
            self.widths += [float(width) for width in re.findall(r"width:([\d.]+)%;background", style)]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag
        self.text += "\n" if tag in ("div", "caption", "tr") else " " if tag in ("td", "th") else ""

    def handle_data(self, data):
        self.text += data


def lines(value):
    return [line.strip() for line in Cell(value._repr_html_()).text.splitlines()]


def screen(rendered, width=400):
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(rendered)
    return [line.strip() for line in out.getvalue().splitlines()]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "digits"
    folder.mkdir()
    simulate(replace(stories.VALUES_AND_LATE_RANK, num_steps=9, has_memory=True)).write(folder)
    return kinetoscope.analyze(folder, cache=False)


def test_a_report_shows_the_first_lines_and_findings_of_the_screen(report, monkeypatch):
    monkeypatch.chdir(Path(report.folder).parent)  # elsewhere, only the screen names the folder
    shown, on_screen = lines(report), screen(render_summary(report, 400, with_details=True))
    assert shown[0] == on_screen[0]
    assert shown[0].startswith("digits: 4 ranks, ")
    first = report.findings[0]
    below = next(index for index, line in enumerate(on_screen) if line.startswith(f"1  {first.title}")) + 1
    assert [line for line in on_screen[below : below + 3] if line not in shown] == []
    assert f"In a terminal: {first.link}" in shown
    assert "A rank's throughput: unknown" in shown
    assert shown[-2].startswith("All of it: kinetoscope.view(report) in a cell")


def test_bar_shows_the_time_breakdown_of_the_bounding_side(report):
    cell = Cell(report._repr_html_())
    side = "device" if report.run["bound_by"] in ("compute", "communication") else "host"
    known = {part: ns for part, ns in report.run["parts"][side].items() if (ns or 0) >= 500}
    assert f"{SIDE_LABELS[side]}, ms/step" in cell.text
    assert sum(cell.widths) == pytest.approx(100, abs=0.1)
    shares = [100 * ns / sum(known.values()) for ns in known.values()]
    assert sorted(cell.widths) == pytest.approx(sorted(shares), abs=0.01)


def test_small_part_of_a_step_is_not_reported_as_zero(report):
    parts = {side: breakdown and dict(breakdown) for side, breakdown in report.run["parts"].items()}
    parts["host"]["gc_ns"] = parts["host"]["data_wait_ns"] = 0.001 * report.run["step_ns"]
    printed = lines(replace(report, run=report.run | {"parts": parts, "bound_by": "data"}))
    assert any("GC pauses" in line and "(<1%)" in line and "(0%)" not in line for line in printed)


def test_loop_counts_unknown_values_and_a_kill_are_shown(report):
    parts = {**report.run["parts"], "host": {**report.run["parts"]["host"], "optimizer_ns": None}}
    run = report.run | {"samples_per_s": 1234.0, "state": "killed", "parts": parts, "bound_by": "host"}
    shown = lines(replace(report, run=run, findings=[]))
    assert "Throughput per rank: 1,234 samples/s" in shown
    assert shown[1].startswith("This run was killed")
    assert "unknown: optimizer" in shown
    assert "No finding." in shown


def test_a_trace_without_steps_says_so(tmp_path):
    simulate(Settings(num_ranks=1, num_steps=3)).write(tmp_path)
    report = kinetoscope.analyze(tmp_path, step="nothing has this name", cache=False)
    shown = lines(report)
    assert "no step was recorded" in shown[0]
    assert any(line.startswith("GPU, ms of the ") for line in shown)
    assert "No findings, since no steps were recorded." in shown
    assert any(line.startswith("No step was found: ") for line in shown)


@pytest.mark.parametrize("name", HOSTILE)
def test_names_of_any_kind_stay_text(report, name):
    where = Where(spans=(name,), lines=(f"{name}:3",))
    bad = build_finding("synchronisation", name, name, confidence="high", evidence={}, where=where, cost_ns=1)
    run = report.run | {"title": name, "notes": [name]}
    named = replace(report, run=run, findings=[bad])
    for shown in (named, bad, kinetoscope.compare(named, named), Change(faster={name: 2.0})):
        text = "\n".join(lines(shown))
        assert name.replace("\u202e", "\\u202e") in text.replace("\u202e", "\\u202e")
    assert len(repr(bad).splitlines()) == 1


def test_many_and_long_things_are_few_and_short(report):
    bad = build_finding("synchronisation", "x" * 10**6, "y" * 10**6, confidence="high", evidence={}, cost_ns=1)
    many = replace(report, run=report.run | {"notes": ["note"] * 100}, findings=[bad] * 50)
    shown = lines(many)
    assert "and 47 more findings" in shown
    assert "and 97 more notes" in shown


def test_no_home_and_no_user_is_in_a_cell(report):
    where = Where(lines=("/home/anna/secret/train.py:3",))
    bad = build_finding("input_bound", "Wait", "Ask anna.", confidence="high", evidence={}, where=where, cost_ns=1)
    run = report.run | {"notes": ["Left out: /home/anna/secret/rank1.json"], "missing": ["It is in /home/anna/x.json."]}
    named = replace(report, run=run | {"state": "killed"}, findings=[bad])
    for shown in (named, bad, kinetoscope.compare(named, named)):
        assert not re.search("anna|secret/", shown._repr_html_())
    assert "line train.py:3" in lines(bad)


def test_a_comparison_and_its_rows_have_the_words_of_the_screen(report):
    slower = replace(report, run=report.run | {"title": "mine"})
    found = kinetoscope.compare(report, slower)
    shown, on_screen = lines(found), screen(render_comparison(found, 400, with_details=True))
    runs = [re.sub(r"\s+", " ", line) for line in on_screen if line.startswith(("before:", "after:"))]
    assert shown[0] == on_screen[0]
    assert runs == shown[1:3]
    header = next(index for index, line in enumerate(on_screen) if line.startswith("kind "))
    end = next(index for index, line in enumerate(on_screen) if line.startswith("times in ms"))
    table = [re.sub(r"\s+", " ", line) for line in on_screen[header:end]]
    assert [line for line in table if line not in map(squeezed, shown)] == []
    assert squeezed(lines(found.rows[0])[1]) == table[1]
    assert ": unknown, then " in repr(replace(found.rows[0], before=None))
    assert repr(found.rows[0]).startswith("<kinetoscope.ComparisonRow ")
    assert len(repr(found.rows[0]).splitlines()) == 1


def squeezed(line):
    return re.sub(r"\s+", " ", line)


def test_a_change_and_a_finding_say_what_they_are_in_one_line(report):
    change = Change(without=frozenset(["gc", "data"]), faster={"aten::mm": 2.0}, on_time=frozenset([3, 1]))
    assert lines(change)[0] == (
        "no wait for data, no GC pauses, aten::mm 2x faster, ranks 1, 3 without straggler delay"
    )
    assert lines(Change())[0] == "no change"
    first = report.findings[0]
    assert repr(first) == f"<kinetoscope.Finding {first.kind}: {first.title}; confidence {first.confidence}>"


def test_colours_are_those_of_the_page():
    known = set(re.findall(r"#[0-9a-f]{6}", STYLES.read_text(encoding="utf-8")))
    between = {part for part, colour in PART_COLOURS.items() if colour not in known}
    assert between == {"sync_ns", "unknown_ns", "ahead_ns", "idle_ns"}
