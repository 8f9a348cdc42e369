"""All steps of a run in the first view, in a real browser: their times, evaluations and restarts."""

import re

import pytest
from playwright.sync_api import expect

from kinetoscope import JSONTraceHandler, Profiler, cyclic_schedule
from kinetoscope.cli import main
from kinetoscope.testing import FakeClock
from support.minimal_pages import assert_accessible

MS = 1_000_000
NUM_STEPS = 40


def train(folder):
    """Train for some steps, two of them recorded, with an evaluation."""
    clock = FakeClock(tick_ns=0)
    schedule = cyclic_schedule(skip_first=10, warmup=0, active=2, per="run")
    with Profiler(schedule, JSONTraceHandler(str(folder / "traces")), clock=clock, quiet=True) as profiler:
        for batch in profiler.batches(range(NUM_STEPS)):
            if batch == NUM_STEPS // 2:
                with profiler.eval():
                    clock.advance(20 * MS)
            clock.advance(5 * MS)


def test_evaluations_and_restarts_are_marked(page, open_file, tmp_path, monkeypatch):
    for restart in range(2):
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", str(restart))
        train(tmp_path / "run")
    assert main(["report", "--no-cache", str(tmp_path / "run"), "-o", str(tmp_path / "report.html")]) == 0
    open_file(tmp_path / "report.html")

    steps = page.get_by_role("region", name="All steps of the run")
    expect(steps.get_by_role("list", name="Colours and symbols")).to_contain_text("▼ evaluation↻ restart")
    expect(steps.get_by_title("evaluation")).to_have_count(2)
    mark, chart = steps.get_by_title("restart").bounding_box(), steps.get_by_role("slider").bounding_box()
    at_restart = chart["x"] + chart["width"] * (NUM_STEPS + 0.5) / (2 * NUM_STEPS)
    assert mark["x"] + mark["width"] / 2 == pytest.approx(at_restart, abs=3)
    slider = steps.get_by_role("slider")
    slider.focus()
    for key in (*["PageDown"] * (NUM_STEPS // 10), "ArrowRight"):
        page.keyboard.press(key)
    expect(slider).to_have_attribute("aria-valuetext", re.compile(r"^Step 0: .*, with restart$"))
    assert_accessible(page)
