"""What Kineto's file gets wrong is found in its results."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from kinetoscope.torch.repair import find_faults


@dataclass
class KinetoEvent:
    """The methods of Kineto's event that are looked at."""

    name_: str
    begin: int
    end: int
    thread: int = 1

    def name(self) -> str:
        return self.name_

    def start_ns(self) -> int:
        return self.begin

    def duration_ns(self) -> int:
        return self.end - self.begin

    def end_ns(self) -> int:
        return self.end

    def start_thread_id(self) -> int:
        return self.thread


def faults_of(*events: KinetoEvent):
    return find_faults(SimpleNamespace(events=lambda: list(events)))


def test_plain_names_and_nested_spans_have_no_faults():
    assert not faults_of(KinetoEvent("a/b [c] ~x", 0, 9), KinetoEvent("inner", 0, 9), KinetoEvent("next", 9, 12))


@pytest.mark.parametrize("name", ['q"', "back\\slash", "tab\t", "line\n", "é", "\x7f"])
def test_a_name_that_kineto_changes_is_found_by_its_time(name):
    assert faults_of(KinetoEvent(name, 5, 9), KinetoEvent("plain", 5, 9)).changed_names == {(5, 4): [name]}


def test_spans_that_overlap_on_one_thread_are_found():
    assert faults_of(KinetoEvent("a", 0, 5), KinetoEvent("b", 3, 8)).overlaps


def test_spans_that_overlap_on_two_threads_are_fine():
    assert not faults_of(KinetoEvent("a", 0, 5, thread=1), KinetoEvent("b", 3, 8, thread=2)).overlaps
