"""The clocks of a thread: their values, their thread, and the files that they close."""

import os
import sys
import threading
import time

import pytest

from kinetoscope.native import native
from support.open_files import open_files_below

needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="open files are listed by Linux")


@pytest.fixture
def schedstat(tmp_path):
    """A file in the place of Linux's: the thread has waited for a processor for 1 us."""
    file = tmp_path / "schedstat"
    file.write_text("7 1000 3\n")
    return file


def wait():
    time.sleep(0.002)


def exit_code_in_child(is_right):
    """Return whether ``is_right`` holds in a forked child."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if is_right() else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_the_parts_are_the_time_between_two_readings():
    before_ns = time.monotonic_ns()
    clocks = native.ThreadClocks(f"/proc/self/task/{threading.get_native_id()}/schedstat")
    inner_ns = time.monotonic_ns()
    wait()
    least_ns = time.monotonic_ns() - inner_ns
    values = clocks.read()
    assert least_ns <= sum(values.values()) <= time.monotonic_ns() - before_ns
    assert 0 < values["running_ns"] < sum(values.values())


def test_run_queue_delay_is_the_systems_count_since_the_last_sample(schedstat):
    clocks = native.ThreadClocks(str(schedstat))
    wait()
    schedstat.write_text("7 1600 3\n")
    values = clocks.read()
    assert list(values) == ["running_ns", "starved_ns", "blocked_ns"]
    assert values["starved_ns"] == 600
    wait()
    assert clocks.read()["starved_ns"] == 0


@pytest.mark.parametrize(("text", "is_all"), [("7 9000000000000 3", True), ("7 10 3", False)])
def test_run_queue_delay_is_at_most_the_time_off_cpu(schedstat, text, is_all):
    clocks = native.ThreadClocks(str(schedstat))
    wait()
    schedstat.write_text(text)
    values = clocks.read()
    assert (values["blocked_ns"] == 0) is is_all
    assert (values["starved_ns"] == 0) is not is_all


@pytest.mark.parametrize("text", ["", "7", "7 ", "7 -1 3", "7 some 3", "7  1000 3", "\0"])
def test_missing_system_values_are_unknown(schedstat, text):
    clocks = native.ThreadClocks(str(schedstat))
    schedstat.write_text(text)
    wait()
    assert list(clocks.read()) == ["running_ns", "waiting_ns"]
    schedstat.write_text("7 1000 3\n")
    assert list(clocks.read()) == ["running_ns", "waiting_ns"], "it is unknown since the last sample"
    assert list(clocks.read()) == ["running_ns", "starved_ns", "blocked_ns"]


def test_run_queue_delay_is_unknown_without_the_proc_file():
    clocks = native.ThreadClocks("/nowhere/schedstat")
    wait()
    values = clocks.read()
    assert list(values) == ["running_ns", "waiting_ns"]
    assert values["waiting_ns"] > 0


def test_another_thread_reads_nothing_and_loses_nothing(schedstat):
    clocks, read = native.ThreadClocks(str(schedstat)), []
    schedstat.write_text("7 1600 3\n")
    wait()
    other = threading.Thread(target=lambda: read.append(clocks.read()))
    other.start()
    other.join()
    assert read == [None]
    assert clocks.read()["starved_ns"] == 600


def test_a_later_thread_with_the_same_address_reads_nothing(schedstat):
    made, read = [], []

    def make():
        made.append((threading.get_ident(), native.ThreadClocks(str(schedstat))))

    def look():
        ident, clocks = made[0]
        read.append((threading.get_ident() == ident, clocks.read()))

    for work in (make, *[look] * 20):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert {values for _, values in read} == {None}


@needs_fork
def test_a_forked_child_reads_nothing_of_its_parent_and_has_clocks_of_its_own(schedstat):
    clocks = native.ThreadClocks(str(schedstat))
    assert exit_code_in_child(lambda: clocks.read() is None) == 0
    assert exit_code_in_child(lambda: list(native.ThreadClocks(str(schedstat)).read())[1] == "starved_ns") == 0
    assert clocks.read() is not None


@needs_proc
def test_the_file_is_closed_at_the_end_once(schedstat):
    clocks = native.ThreadClocks(str(schedstat))
    clocks.close()
    assert open_files_below(schedstat) == []
    with open(schedstat) as others:  # it gets the number that is free now
        clocks.close()
        del clocks
        assert others.read() == "7 1000 3\n"


@needs_proc
def test_clocks_that_are_dropped_leave_no_file(schedstat):
    for _ in range(10):
        native.ThreadClocks(str(schedstat)).read()
    assert open_files_below(schedstat) == []


@needs_proc
def test_a_program_that_is_started_does_not_get_the_file(schedstat):
    clocks = native.ThreadClocks(str(schedstat))
    (file,) = open_files_below(schedstat)
    assert not os.get_inheritable(file)
    clocks.close()


def test_closed_clocks_read_nothing(schedstat):
    clocks = native.ThreadClocks(str(schedstat))
    clocks.close()
    assert clocks.read() is None


@pytest.mark.parametrize("wrong", [(), (1,), ("a\0b",), ("a", "b")])
def test_wrong_arguments_are_refused(wrong):
    with pytest.raises((TypeError, ValueError)):
        native.ThreadClocks(*wrong)
