"""The names that Kineto writes otherwise are found in its results."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from kinetoscope.torch.repair import find_true_names


@dataclass
class Activity:
    """The methods of Kineto's activity that are looked at."""

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
    return find_true_names(SimpleNamespace(trace_activities=lambda: list(activities)))


def test_plain_names_are_as_kineto_writes_them():
    names = names_of(Activity("a/b [c] ~x", 0, 9), Activity("inner", 0, 9))
    assert (names.by_span, names.in_order) == ({}, [])


@pytest.mark.parametrize(
    ("name", "raw"),
    [('q"', 'q"'), ("a\\b", "a/b"), ("tab\t", "unknown"), ("l\nm", "lm"), ("\u00e9", "unknown"), ("\x7f", "unknown")],
)
def test_a_name_that_kineto_changes_is_found_with_what_it_writes(name, raw):
    names = names_of(Activity("plain", 5, 9), Activity(name, 5, 9))
    assert names.by_span == {(5, 4): [name]}
    assert [(it.number, it.name, it.raw) for it in names.in_order or ()] == [(1, name, raw)]


def test_the_order_holds_over_many_activities():
    activities = [
        Activity(f"odd\t{number}" if number % 1000 == 7 else "plain", number, number + 1) for number in range(5000)
    ]
    assert [it.number for it in names_of(*activities).in_order or ()] == [7, 1007, 2007, 3007, 4007]


def test_before_torch_2_13_nothing_tells_the_order():
    before = SimpleNamespace(events=lambda: [Activity("plain", 0, 1), Activity("q\t", 5, 9)])
    assert (find_true_names(before).by_span, find_true_names(before).in_order) == ({(5, 4): ["q\t"]}, None)
