"""Trace handlers that override the per-event methods: the contract of the seed's TraceHandler."""

import asyncio
import threading
from unittest.mock import Mock

from kinetoscope import ProfilerAction, TraceHandler
from kinetoscope.recording.profiler import Profiler
from kinetoscope.testing import FakeClock


class Log(TraceHandler):
    """Notes every event."""

    def __init__(self):
        self.events = []
        self.inside = 0
        self.overlapping = False

    def process_duration_event(self, name, categories, is_start, timestamp, wall_clock_time_ns):
        self.overlapping |= self.inside > 0
        self.inside += 1
        if not name.startswith(("event/", "kinetoscope/")):
            self.events.append((name, is_start, wall_clock_time_ns))
        self.inside -= 1

    def process_instant_event(self, name, categories, timestamp, wall_clock_time_ns):
        self.events.append((name, categories, timestamp.batch, wall_clock_time_ns))

    def process_counter_event(self, name, categories, timestamp, wall_clock_time_ns, values):
        self.events.append((name, values, wall_clock_time_ns))


def run(body, schedule=lambda state: ProfilerAction.ACTIVE, clock=None):
    log = Log()
    with Profiler(schedule, log, clock=clock, strict=True) as profiler:
        body(profiler)
    return log


def test_listener_gets_start_and_end_of_a_span_in_unix_nanoseconds():
    clock = FakeClock(monotonic_ns=50, unix_ns=1_000_000)

    def body(profiler):
        with profiler.marker("m"):
            clock.advance(70)

    assert run(body, clock=clock).events == [("m", True, 1_000_000), ("m", False, 1_000_070)]


def test_instants_and_counters_are_delivered_with_the_timestamp():
    clock = FakeClock(unix_ns=500)

    def body(profiler):
        profiler.step()
        profiler.marker("i", categories=("c",)).instant()
        profiler.marker("n").counter({"a": 1.5})

    assert run(body, clock=clock).events == [("i", ("c",), 1, 500), ("n", {"a": 1.5}, 500)]


def test_listeners_get_the_outermost_of_recursive_spans():
    def body(profiler):
        marker = profiler.marker("m")
        with marker, marker, marker:
            pass

    assert [event[:2] for event in run(body).events] == [("m", True), ("m", False)]


def test_listeners_get_the_first_of_concurrent_spans_and_its_own_end():
    clock = FakeClock(unix_ns=0)

    def body(profiler):
        marker = profiler.marker("m")
        first = marker.begin()
        second = marker.begin()
        clock.advance(10)
        marker.end(second)
        clock.advance(10)
        marker.end(first)

    assert run(body, clock=clock).events == [("m", True, 0), ("m", False, 20)]


def test_calls_from_many_threads_come_one_at_a_time_and_balance():
    def body(profiler):
        def work():
            for _ in range(200):
                with profiler.marker("m"):
                    pass

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    log = run(body)
    starts = [event[1] for event in log.events]
    assert starts == [True, False] * (len(starts) // 2)
    assert not log.overlapping


def test_tasks_that_interleave_still_balance():
    def body(profiler):
        async def work():
            with profiler.marker("m"):
                await asyncio.sleep(0)

        async def main():
            await asyncio.gather(*(work() for _ in range(5)))

        asyncio.run(main())

    starts = [event[1] for event in run(body).events]
    assert starts == [True, False] * (len(starts) // 2)


def test_a_listener_gets_one_end_of_a_span_that_is_open_at_the_end_of_the_window():
    def schedule(state):
        return ProfilerAction.ACTIVE_AND_SAVE if state.timestamp.batch == 0 else ProfilerAction.SKIP

    def body(profiler):
        with profiler.marker("m"):
            profiler.step()

    assert [event[:2] for event in run(body, schedule).events] == [("m", True), ("m", False)]


def test_a_listener_does_not_get_spans_that_the_schedule_skips():
    def body(profiler):
        with profiler.marker("m"):
            pass

    assert run(body, lambda state: ProfilerAction.SKIP).events == []


def test_listeners_get_a_marker_that_records_skip_outside_windows_too():
    def body(profiler):
        with profiler.marker("m", actions=list(ProfilerAction)):
            pass

    assert len(run(body, lambda state: ProfilerAction.SKIP).events) == 2


def test_a_handler_that_is_no_trace_handler_is_called_by_the_methods_it_has():
    handler = Mock()
    with Profiler(lambda state: ProfilerAction.ACTIVE, handler) as profiler:
        with profiler.marker("m", categories=["c"]):
            pass
    calls = [call.kwargs for call in handler.process_duration_event.call_args_list if call.kwargs["name"] == "m"]
    assert [(call["name"], call["categories"], call["is_start"]) for call in calls] == [
        ("m", ("c",), True),
        ("m", ("c",), False),
    ]
