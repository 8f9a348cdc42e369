"""SystemProfiler on a real machine: its counters, their units, and when they are read."""

import os
import subprocess
import sys
import threading
import time
from itertools import count
from types import SimpleNamespace

import psutil
import pytest

from kinetoscope import ProfilerAction, StackSampler, SystemProfiler
from kinetoscope.errors import SettingsError
from kinetoscope.formats.trace_names import LOOP_CLOCKS, PROCESSORS
from kinetoscope.recording.profiler import Profiler
from kinetoscope.sources import nvml, system_profiler
from kinetoscope.testing import MemoryTraceHandler
from support.polling import wait_for

EVERYTHING = {"profile_cpu": True, "profile_memory": True, "profile_disk": True, "profile_net": True}


def always(state):
    return ProfilerAction.ACTIVE


def windows_of_two(state):
    """Return the action of a batch: the second and the third of three are recorded."""
    return [ProfilerAction.SKIP, ProfilerAction.ACTIVE, ProfilerAction.ACTIVE_AND_SAVE][state.timestamp.batch % 3]


class Reads:
    """Counts how often the thread of a source reads: on a busy machine it may not run for long."""

    def __init__(self, source):
        self.num, self._read_all, source._read_all = 0, source._read_all, self._read

    def _read(self, *arguments):
        self._read_all(*arguments)
        self.num += 1


def counters(source, *, num_reads=3):
    """Return the counters of ``source``, whose thread has read in each of so many batches."""
    handler, reads = MemoryTraceHandler(), Reads(source)
    with Profiler(always, handler, sources=[source], strict=True) as profiler:
        for batch in profiler.batches(range(num_reads)):
            wait_for(lambda batch=batch: reads.num > batch)
    return handler.counters()


def counters_of_windows(source, num_windows):
    """Return the counters of ``source``, whose thread has read in each batch of the windows."""
    handler, reads = MemoryTraceHandler(), Reads(source)
    with Profiler(windows_of_two, handler, sources=[source], strict=True) as profiler:
        for batch in profiler.batches(range(3 * num_windows)):
            wait_for(lambda batch=batch: reads.num >= batch % 3 + 2 * (batch // 3))
    return handler.counters()


def last(values, series):
    return [value for _, name, value in values if name == series][-1]


def test_memory_is_counted_in_true_gib():
    found = counters(SystemProfiler(**EVERYTHING, stats_thread_interval_seconds=0.02))
    total_gib = psutil.virtual_memory().total / 2**30
    assert 0 < last(found["memory/virtual"], "used_gib") <= total_gib
    assert 0 < last(found["memory/virtual"], "available_gib") <= total_gib
    resident_gib = psutil.Process().memory_info().rss / 2**30
    assert last(found["process"], "resident_gib") == pytest.approx(resident_gib, rel=0.3)
    assert last(found["process"], "threads") >= 2


def test_used_memory_is_what_is_not_available_and_used_swap_what_is_not_free(monkeypatch):
    gib = 2**30
    monkeypatch.setattr(system_profiler, "_IS_LINUX", False)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=3 * gib, total=8 * gib))
    monkeypatch.setattr(psutil, "swap_memory", lambda: SimpleNamespace(free=1 * gib, total=5 * gib))
    source = SystemProfiler(profile_cpu=False, profile_memory=True, stats_thread_interval_seconds=60)
    found = counters(source, num_reads=1)
    assert (last(found["memory/virtual"], "used_gib"), last(found["memory/virtual"], "available_gib")) == (5, 3)
    assert (last(found["memory/swap"], "used_gib"), last(found["memory/swap"], "free_gib")) == (4, 1)


def test_cpu_is_a_percentage():
    found = counters(SystemProfiler(stats_thread_interval_seconds=0.02))
    assert 0 <= last(found["cpu"], "percent") <= 100
    assert set(found) == {"cpu", "process", LOOP_CLOCKS}


@pytest.mark.skipif(not os.path.exists("/proc/self/schedstat"), reason="the system has no run-queue delay")
def test_the_shortest_window_has_the_run_queue_delay_of_a_loop_that_shares_a_core():
    """Two threads want one core, each for half of the time; the window is one batch."""
    allowed = os.sched_getaffinity(0)
    pinned = f"import os; os.sched_setaffinity(0, {{{min(allowed)}}})\nprint(flush=True)\nwhile True: pass"
    neighbour = subprocess.Popen([sys.executable, "-S", "-c", pinned], stdout=subprocess.PIPE)
    handler = MemoryTraceHandler()
    try:
        neighbour.stdout.readline()
        os.sched_setaffinity(threading.get_native_id(), {min(allowed)})
        sources = [SystemProfiler(stats_thread_interval_seconds=60)]
        with Profiler(always, handler, sources=sources, strict=True) as profiler:
            for _ in profiler.batches(range(1)):
                until = time.thread_time() + 0.1
                while time.thread_time() < until:
                    pass
    finally:
        os.sched_setaffinity(threading.get_native_id(), allowed)
        neighbour.kill()
        neighbour.communicate()
    times = {series: value for _, series, value in handler.counters()[LOOP_CLOCKS]}
    assert times["running_ns"] >= 100_000_000
    assert 0.2 < times["starved_ns"] / (times["starved_ns"] + times["running_ns"]) < 1


def processor_notes(handler):
    return [event.args for cycle in handler.cycles for event in cycle.events if event.name == PROCESSORS]


@pytest.mark.parametrize("kinds", [(SystemProfiler,), (StackSampler,), (SystemProfiler, StackSampler)])
def test_each_batch_is_read_once_and_each_window_has_one_note_for_any_sources(kinds):
    handler = MemoryTraceHandler()
    sources = [kind() for kind in kinds]
    with Profiler(windows_of_two, handler, sources=sources, strict=True) as profiler:
        for _ in profiler.batches(range(6)):
            time.sleep(0.01)
    readings = [series for _, series, _ in handler.counters()[LOOP_CLOCKS]]
    assert readings.count("running_ns") == 4
    assert len(processor_notes(handler)) == 2


def test_without_cpu_counters_the_clocks_of_the_loop_are_not_read():
    handler = MemoryTraceHandler()
    sources = [SystemProfiler(profile_cpu=False, profile_memory=True)]
    with Profiler(always, handler, sources=sources, strict=True) as profiler:
        for _ in profiler.batches(range(2)):
            pass
    assert LOOP_CLOCKS not in handler.counters()
    assert not processor_notes(handler)


def test_disks_and_network_cards_have_totals_and_rates_each_under_its_own_name():
    found = counters(SystemProfiler(**EVERYTHING, stats_thread_interval_seconds=0.02))
    for card in psutil.net_io_counters(pernic=True):
        assert last(found[f"network/{card}"], "received_bytes") >= 0
        assert last(found[f"network/{card}"], "received_bytes_per_s") >= 0
    for disk in psutil.disk_io_counters(perdisk=True) or {}:
        assert last(found[f"disk/{disk}"], "write_bytes") >= 0


def test_a_disk_that_works_half_of_the_time_is_50_percent_busy(monkeypatch):
    seconds, totals = count(step=2), []

    def read_disks(**how):
        totals.append(1000 * len(totals))
        return {"sda": SimpleNamespace(read_bytes=0, write_bytes=totals[-1], busy_time=totals[-1])}

    monkeypatch.setattr(system_profiler, "monotonic", lambda: next(seconds))
    monkeypatch.setattr(psutil, "disk_io_counters", read_disks)
    source = SystemProfiler(profile_cpu=False, profile_disk=True, stats_thread_interval_seconds=0.01)
    found = counters(source, num_reads=4)["disk/sda"]
    assert {value for _, series, value in found if series == "busy_percent"} == {50.0}
    assert {value for _, series, value in found if series == "write_bytes_per_s"} == {500.0}


def test_short_window_is_sampled_at_its_start_and_last_batch():
    found = counters_of_windows(SystemProfiler(stats_thread_interval_seconds=60), 1)
    assert len([value for _, series, value in found["process"] if series == "threads"]) == 2


def test_first_sample_of_a_window_has_no_percentages(monkeypatch):
    percents = count(start=0, step=10)
    monkeypatch.setattr(psutil, "cpu_percent", lambda interval: float(next(percents)))
    found = counters_of_windows(SystemProfiler(stats_thread_interval_seconds=60), 2)
    assert [value for _, _, value in found["cpu"]] == [10.0, 30.0]
    assert len([value for _, series, value in found["process"] if series == "percent"]) == 2


def test_nothing_is_read_while_every_batch_is_skipped(monkeypatch):
    source = SystemProfiler(stats_thread_interval_seconds=0.01)
    reads = []
    monkeypatch.setattr(source, "_read_all", lambda *arguments: reads.append(arguments))
    with Profiler(lambda state: ProfilerAction.SKIP, MemoryTraceHandler(), sources=[source], strict=True) as profiler:
        for _ in profiler.batches(range(3)):
            time.sleep(0.05)
    assert reads == []


def test_the_thread_of_the_system_profiler_is_joined_at_close():
    before = set(threading.enumerate())
    counters(SystemProfiler(), num_reads=1)
    assert set(threading.enumerate()) <= before  # one of an earlier test may have ended


@pytest.mark.parametrize("interval", [0, -1, float("nan"), float("inf"), 10**400, "0.1", None])
def test_an_interval_that_cannot_work_is_refused(interval):
    with pytest.raises(SettingsError, match="stats_thread_interval_seconds"):
        SystemProfiler(stats_thread_interval_seconds=interval)


@pytest.mark.parametrize("error", [KeyError("MemFree"), NotImplementedError(), AttributeError("x"), psutil.Error("y")])
def test_a_reader_that_raises_is_reported_once_and_the_others_go_on(monkeypatch, caplog, error):
    def fail(interval=None):
        raise error

    source = SystemProfiler(profile_memory=True, stats_thread_interval_seconds=0.01)
    monkeypatch.setattr(psutil, "cpu_percent", fail)
    found = counters(source)
    assert "cpu" not in found
    assert len(found["process"]) > 2
    assert len(found["memory/virtual"]) > 2
    assert [record.message for record in caplog.records if "cpu cannot be read" in record.message] == caplog.messages
    assert len(caplog.messages) == 1


def test_a_reader_that_raises_an_unexpected_error_is_not_used_again(monkeypatch):
    intervals = []

    def fail(interval=None):
        intervals.append(interval)
        raise KeyError("MemFree")

    source = SystemProfiler(stats_thread_interval_seconds=0.01)
    monkeypatch.setattr(psutil, "cpu_percent", fail)
    assert len(counters(source)["process"]) > 2
    assert len(intervals) == 1


def test_gpus_that_cannot_be_opened_for_any_reason_leave_the_other_readers_alone(monkeypatch, caplog):
    def fail(ranks):
        raise AttributeError("nvmlDeviceGetCount")

    monkeypatch.setattr(nvml, "open_gpus", fail)
    assert counters(SystemProfiler(stats_thread_interval_seconds=0.01))["process"]
    assert "GPUs are not recorded" not in caplog.text  # none was requested
