"""The true names of what Kineto misspells are found in its results."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from kinetoscope.torch.original_names import find_original_names, register_name


@dataclass
class Activity:
    """The methods of Kineto's activity that we use."""

    name_: str
    begin: int
    end: int

    def name(self) -> str:
        return self.name_

    def timestamp(self) -> int:
        return self.begin

    def duration(self) -> int:
        return self.end - self.begin

    start_ns, duration_ns = timestamp, duration


def names_of(*activities: Activity):
    return find_original_names(
        SimpleNamespace(trace_activities=lambda: list(activities), events=lambda: list(activities))
    )


def test_plain_names_are_as_kineto_writes_them():
    names = names_of(Activity("a/b [c] ~x", 0, 9), Activity("inner", 0, 9))
    assert (names.by_span, names.in_order) == ({}, [])


@pytest.mark.parametrize(
    ("name", "raw"),
    [('q"', 'q"'), ("a\\b", "a/b"), ("tab\t", "unknown"), ("l\nm", "lm"), ("\u00e9", "unknown"), ("\x7f", "unknown")],
)
def test_a_name_that_kineto_changes_is_found_by_the_text_that_kineto_writes(name, raw):
    names = names_of(Activity("plain", 5, 9), Activity(name, 5, 9))
    assert names.by_span == {(5, 4): [name]}
    assert [(one.number, one.name, one.raw) for one in names.in_order or ()] == [(1, name, raw)]


def test_the_order_of_many_activities_is_kept():
    activities = [
        Activity(f"odd\t{number}" if number % 1000 == 7 else "plain", number, number + 1) for number in range(5000)
    ]
    assert [one.number for one in names_of(*activities).in_order or ()] == [7, 1007, 2007, 3007, 4007]


def test_before_torch_2_13_the_order_is_not_known():
    before = SimpleNamespace(events=lambda: [Activity("plain", 0, 1), Activity("q\t", 5, 9)])
    assert (find_original_names(before).by_span, find_original_names(before).in_order) == ({(5, 4): ["q\t"]}, None)


@pytest.fixture
def torch_2_14(monkeypatch):
    monkeypatch.setattr("kinetoscope.torch.original_names.TORCH_VERSION", (2, 14))


def since_torch_2_14(*events: Activity, activity: str):
    """Results whose activity has apostrophes where the event has quotes."""
    return SimpleNamespace(trace_activities=lambda: [Activity(activity, 5, 9)], events=lambda: list(events))


@pytest.mark.usefixtures("torch_2_14")
def test_since_torch_2_14_quotes_are_those_of_the_events():
    names = find_original_names(since_torch_2_14(Activity('say "it\'s"\n', 5, 9), activity="say 'it's'\n"))
    assert names.by_span == {(5, 4): ['say "it\'s"\n']}
    assert [one.raw for one in names.in_order or ()] == ["say 'it's'"]


@pytest.mark.usefixtures("torch_2_14")
def test_an_apostrophe_stays_one_where_no_event_has_a_quote_then():
    names = find_original_names(since_torch_2_14(Activity('it"s', 6, 9), Activity("it's", 5, 9), activity="it's"))
    assert names.by_span == {}


@pytest.mark.usefixtures("torch_2_14")
def test_quotes_in_a_trace_only_recording_come_from_a_used_name():
    register_name('which "is" known')
    assert find_original_names(since_torch_2_14(activity="which 'is' known")).by_span == {(5, 4): ['which "is" known']}
    register_name("used 'both' ways")
    register_name('used "both" ways')
    assert find_original_names(since_torch_2_14(activity="used 'both' ways")).by_span == {}
