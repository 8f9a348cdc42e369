"""What the pages say about a run."""

import re
from pathlib import Path

import pytest

from kinetoscope.serving import page
from kinetoscope.serving.page import Pages
from kinetoscope.serving.runs import MOST_ENTRIES, FoundFile, FoundRun, FoundRuns, RunState

PAGES = Pages(Path("/data/my runs"), "https://ui.perfetto.dev")
BEGAN_NS = 1_790_857_026_000_000_000


def text_of(html):
    """What a reader sees."""
    body = re.sub("<(style|script)>.*?</(style|script)>", "", html, flags=re.DOTALL)
    return re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", body))


def test_a_killed_run_says_how_to_make_traces_of_what_it_left():
    run = FoundRun("digits", RunState.KILLED, [0, 1], world_size=4, num_unsaved=2)
    said = text_of(PAGES.run(run))
    assert "killed , 2 of 4 ranks, last written —." in said
    assert "2 killed ranks left unsaved records:" in said
    assert "kinetoscope recover &#x27;/data/my runs/digits&#x27;" in said


def test_what_could_not_be_read_is_said():
    assert "Cannot read the manifest" in text_of(PAGES.run(FoundRun("digits", problem="Cannot read the manifest x.")))


def test_a_run_without_a_report_says_how_to_make_one():
    assert "kinetoscope report &#x27;/data/my runs/digits&#x27;" in text_of(PAGES.run(FoundRun("digits")))


@pytest.mark.parametrize(("name", "has_button"), [("a.json", True), ("a.pftrace.gz", True), ("a.json.zst", False)])
def test_what_perfetto_cannot_read_has_no_button_but_the_way_to_convert_it(name, has_button):
    shown = PAGES.run(FoundRun("digits", traces=[FoundFile(f"digits/{name}", 10, BEGAN_NS)]))
    assert (f'data-trace="/trace/digits/{name}"' in shown) is has_button
    assert ("kinetoscope convert makes .gz of it" in shown) is not has_button
    assert "2026-10-01 12:17:06 UTC" in shown


def test_a_file_may_be_of_any_time():
    for moment_ns in (-(10**25), 10**25):
        assert "10 bytes — " in text_of(PAGES.run(FoundRun("a", traces=[FoundFile("a/a.json", 10, moment_ns)])))


def test_one_run_is_shown_at_once_and_several_as_a_list():
    one, two = FoundRun("one"), FoundRun("two")
    assert "All runs" not in PAGES.listing(FoundRuns([one], is_complete=True))
    listing = PAGES.listing(FoundRuns([one, two], is_complete=True))
    assert re.findall('href="(/run/[a-z]*)"', listing) == ["/run/one", "/run/two"]


def test_what_is_not_shown_is_said(monkeypatch):
    monkeypatch.setattr(page, "_MOST_ROWS", 2)
    runs = [FoundRun(str(number)) for number in range(5)]
    said = text_of(PAGES.listing(FoundRuns(runs, is_complete=False)))
    assert f"Only the first {MOST_ENTRIES:,} files and folders were looked at." in said
    assert "And 3 more runs" in said
    traces = [FoundFile(f"a/{number}.json", 1, 0) for number in range(5)]
    assert "And 3 more:" in text_of(PAGES.run(FoundRun("a", traces=traces)))


@pytest.mark.parametrize(("run", "shown"), [("digits", "traces/a.json"), (".", "digits/traces/a.json")])
def test_a_trace_is_named_as_seen_from_its_run(run, shown):
    html = PAGES.run(FoundRun(run, traces=[FoundFile("digits/traces/a.json", 10, BEGAN_NS)]))
    assert f"<bdi>{shown}</bdi>" in html
