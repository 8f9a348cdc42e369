"""recording/messages/saving_progress.py: lines while a run is saved."""

import pytest

from kinetoscope.recording.messages import saving_progress
from kinetoscope.recording.messages.saving_progress import SavingProgress


@pytest.fixture
def at(monkeypatch):
    """A function that sets the time."""
    now = [1000.0]
    monkeypatch.setattr(saving_progress.time, "monotonic", lambda: now[0])
    return lambda seconds: now.__setitem__(0, 1000.0 + seconds)


def make_line(num_records=0, *, is_quiet=False):
    line = SavingProgress(lambda: num_records, is_quiet=is_quiet)
    line.start()
    return line


def report(line, at, seconds):
    at(seconds)
    line.report()


def test_a_short_close_is_silent_and_a_long_one_says_how_long_it_takes_once(at, capsys):
    line = make_line(num_records=90_000_000)
    at(1)
    line.add_source_stop(0.01)
    line.mark_sources_closed()
    report(line, at, 4.9)
    assert not capsys.readouterr().err
    for seconds in (5, 30, 300):
        report(line, at, seconds)
    assert capsys.readouterr().err == "Kinetoscope: saving 90.0 M events, about 86 s left.\n"


def test_an_estimate_that_comes_later_is_a_second_line(at, capsys):
    line = make_line()
    report(line, at, 6)
    at(40)
    line.add_source_stop(40)
    line.mark_sources_closed()
    report(line, at, 41)
    report(line, at, 42)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "Kinetoscope: saving what was recorded.",
        "Kinetoscope: saving what was recorded, about 39 s left.",
    ]


def test_a_window_that_ended_before_the_close_counts_with_what_is_left_of_it(at, capsys):
    line = make_line(num_records=3)
    line.add_source_stop(30)
    at(1)
    line.add_source_stop(40)
    at(20)
    line.start()
    line.mark_sources_closed()
    report(line, at, 24)
    assert not capsys.readouterr().err
    report(line, at, 30)
    assert capsys.readouterr().err == "Kinetoscope: saving what was recorded, about 40 s left.\n"


def test_an_estimate_that_is_over_is_none(at, capsys):
    line = make_line(num_records=2000)
    line.mark_sources_closed()
    report(line, at, 60)
    assert capsys.readouterr().err == "Kinetoscope: saving 2,000 events.\n"


def test_work_after_the_save_is_not_saving(at, capsys):
    line = make_line(num_records=9_000_000)
    line.end()
    report(line, at, 60)
    assert not capsys.readouterr().err


def test_a_quiet_run_is_silent(at, capsys):
    report(make_line(num_records=9_000_000, is_quiet=True), at, 60)
    assert not capsys.readouterr().err
