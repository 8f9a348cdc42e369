"""Events of sources besides markers, in the files of a run."""

import json

import pytest

from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
from kinetoscope.recording.window import source_events
from kinetoscope.recording.window.source_events import SourceEvent
from kinetoscope.sources.window_source import WindowSource
from kinetoscope.testing import FakeClock


class Notes(WindowSource):
    """Notes these spans and instants when a window closes: name, begin and end."""

    def __init__(self, *notes):
        super().__init__()
        self.notes = notes

    def finish(self, run):
        run.name_track(77, "a track of its own")
        for name, begin_ns, end_ns in self.notes:
            run.add_event(SourceEvent(name, "noted", begin_ns, end_ns, 77, {"line": "train.py:3", "sizes": [1, 2]}))


def record(folder, *notes):
    """Return the trace of a window that was open from 1,000 to 3,000 ns."""
    clock = FakeClock(monotonic_ns=1000)
    handler = JSONTraceHandler(str(folder), merged_trace_filename=None)
    source = Notes(*notes)
    with Profiler(lambda state: ProfilerAction.ACTIVE, handler, sources=[source], clock=clock, strict=True) as profiler:
        for _ in profiler.batches(range(2)):
            clock.advance(1000)
    (path,) = folder.glob("ep*.json")
    return json.loads(path.read_text())


def noted(trace):
    return [event for event in trace["traceEvents"] if event.get("cat") == "noted"]


def test_a_span_is_on_its_named_track_with_all_its_args(tmp_path):
    trace = record(tmp_path, ("work", 1500, 2500))
    (span,) = noted(trace)
    assert (span["ph"], span["name"], span["dur"]) == ("X", "work", 1.0)
    assert span["args"] == {"line": "train.py:3", "sizes": [1, 2]}
    names = {event["tid"]: event["args"]["name"] for event in trace["traceEvents"] if event["name"] == "thread_name"}
    assert names[span["tid"]] == "a track of its own"


def test_an_event_without_an_end_is_an_instant(tmp_path):
    (instant,) = noted(record(tmp_path, ("moment", 1500, None)))
    assert (instant["ph"], instant["s"], "dur" in instant) == ("i", "t", False)


def test_spans_are_clipped_to_the_window_and_what_is_outside_is_left_out(tmp_path):
    trace = record(
        tmp_path, ("over the start", 500, 1500), ("over the end", 2500, 9000), ("before", 1, 900), ("x", 1, None)
    )
    assert {span["name"]: span["dur"] for span in noted(trace)} == {"over the start": 0.5, "over the end": 0.5}


def test_the_trace_says_how_many_events_were_too_many_to_keep(tmp_path, monkeypatch):
    monkeypatch.setattr(source_events, "MAX_EVENTS", 3)
    trace = record(tmp_path, *[("work", 1500, 1600)] * 5)
    assert len(noted(trace)) == 3
    (note,) = trace["kinetoscope"]["repaired"]
    assert note.startswith("2 events of sources are left out")


def test_source_notes_of_one_window_are_not_in_the_next(tmp_path):
    clock, source = FakeClock(monotonic_ns=1000), Notes(("work", 1000, 10**9))
    handler = JSONTraceHandler(str(tmp_path), merged_trace_filename=None)
    with Profiler(lambda state: ProfilerAction.ACTIVE_AND_SAVE, handler, sources=[source], clock=clock) as profiler:
        for _ in profiler.batches(range(2)):
            clock.advance(1000)
    traces = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("ep*.json"))]
    assert [len(noted(trace)) for trace in traces[:2]] == [1, 1]


def test_a_source_that_fails_in_a_window_is_switched_off_and_its_hooks_are_removed(tmp_path, caplog):
    class Failing(WindowSource):
        hooks = 0

        def install(self, run):
            self.hooks += 1
            raise RuntimeError("no hook here")

        def remove(self):
            self.hooks = 0

    source = Failing()
    with Profiler(lambda state: ProfilerAction.ACTIVE, [], sources=[source]) as profiler:
        assert list(profiler.batches(range(2))) == [0, 1]
    assert source.hooks == 0
    assert "Failing failed and is switched off" in caplog.text


@pytest.mark.parametrize("name", ["install", "finish"])
def test_strict_raises_what_a_source_raises(name):
    class Failing(WindowSource):
        pass

    def fail(self, run):
        raise RuntimeError("no hook here")

    setattr(Failing, name, fail)
    profiler = Profiler(lambda state: ProfilerAction.ACTIVE, [], sources=[Failing()], strict=True)
    with pytest.raises(RuntimeError, match="no hook here"), profiler:
        for _ in profiler.batches(range(2)):
            pass
