"""The page on screen shows the numbers of the report: the step, both time breakdowns, and the end of the run."""

import re
from dataclasses import replace

import pytest

from kinetoscope.pages.html_file import render_page
from kinetoscope.report.labels import DEVICE_PART_LABELS, HOST_PART_LABELS
from kinetoscope.report.page.build import build_page
from trainsim import Fault, Settings
from trainsim.analyses import analyze_cached

_UNITS = {"s": 1e9, "ms": 1e6, "µs": 1e3, "ns": 1}
_DEVICE_BOUND = Settings(num_ranks=1, reads_loss="never", num_steps=14)
_TWO_RANKS = Settings(faults=(Fault(kind="late_host", ranks=(1,), cost_ns=4_000_000, every=3),))
_TIME = r"([\d.]+)\s(s|ms|µs|ns)"


def _ns(text):
    number, unit = re.search(_TIME, text).groups()
    return float(number) * _UNITS[unit]


def _parts(breakdown):
    """Return the parts of a time breakdown in nanoseconds, by their lower-case labels."""
    found = [re.match(rf"(.*?) (-?{_TIME}) ", text) for text in breakdown.locator("li").all_inner_texts()]
    return {match[1].strip().lower(): _ns(match[2]) for match in found if match}


def _shown(report, tmp_path):
    file = tmp_path / "report.html"
    file.write_text(render_page(build_page(report, "0")), encoding="utf-8")
    return file


@pytest.mark.parametrize("settings", [_DEVICE_BOUND, _TWO_RANKS], ids=["device-bound", "two ranks"])
def test_page_shows_the_step_and_time_breakdowns_of_the_report(settings, page, open_file, tmp_path):
    report = analyze_cached(settings)[1]
    open_file(_shown(report, tmp_path))
    step_ns, parts = report.run["step_ns"], report.run["parts"]

    assert _ns(page.locator(".hero-step").inner_text()) == pytest.approx(step_ns, rel=0.006)
    breakdowns = page.locator(".breakdown").all()
    for breakdown, words, expected_parts in zip(
        breakdowns, (HOST_PART_LABELS, DEVICE_PART_LABELS), parts.values(), strict=True
    ):
        shown = _parts(breakdown)
        known = {words[name].lower(): time_ns for name, time_ns in expected_parts.items() if time_ns and time_ns > 0}
        expected = {word: time_ns for word, time_ns in known.items() if time_ns >= 0.001 * step_ns}
        assert {word: time_ns for word, time_ns in shown.items() if time_ns > 0} == pytest.approx(expected, rel=0.006)
    bars = page.get_by_role("list", name="Step time by rank").locator(".stack-length").all_inner_texts()
    shown_ranks = report.ranks if len(report.ranks) > 1 else []  # of one rank, the bars above have it all
    assert [_ns(text) for text in bars] == [pytest.approx(row.step_ns, rel=0.006) for row in shown_ranks]


def test_page_shows_a_killed_run_and_an_unknown_phase(page, open_file, tmp_path):
    report = analyze_cached(_DEVICE_BOUND)[1]
    host = report.run["parts"]["host"] | {"backward_ns": None}
    run = report.run | {"state": "killed", "parts": report.run["parts"] | {"host": host}}
    open_file(_shown(replace(report, run=run), tmp_path))

    assert "This run was killed" in page.locator("header").inner_text()
    assert "Unknown: backward" in page.get_by_role("region", name="CPU time per step").inner_text()
