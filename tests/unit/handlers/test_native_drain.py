"""Draining in C: the file has the same events as the one that Python writes."""

import json
import locale
import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kinetoscope.core.clock.clock import Anchor
from kinetoscope.core.job.ranks import Attempt, Ranks
from kinetoscope.core.job.timestamp import Timestamp
from kinetoscope.handlers.cycle_events import Drain
from kinetoscope.handlers.json_trace_handler import JSONTraceHandler
from kinetoscope.recording.markers.recorder_types import SpanName, WindowRecords
from kinetoscope.recording.window.cycle import Cycle
from kinetoscope.recording.window.source_events import SourceEvent
from kinetoscope.spool.folders import TraceRecipe
from kinetoscope.spool.record import Flag, Kind, Record, RecordsInMemory, ThreadRecords, pack_records
from support.trace_processor.trace_processor import load

NAMES = [
    SpanName("work"),
    SpanName("event/batch", ("loop", "kernel")),
    SpanName('quote " and \\', ('odd "category"',)),
    SpanName("ünïcödé 火\n\x00"),
    SpanName("\ud800"),
    SpanName(""),
    SpanName("work", ("another",)),
]
BEGIN_NS, UNIX_NS = 5_000_000_000, 1_700_000_000_123_456_789
SECOND_NS = 1_000_000_000


def span(begin, end, name=0, batch=0, flags=Flag.NONE):
    return Record(BEGIN_NS + begin, BEGIN_NS + end, name, batch, 0, Kind.SPAN, flags)


def instant(begin, name=0):
    return Record(BEGIN_NS + begin, 0, name, 7, 0, Kind.INSTANT, Flag.NONE)


def counter(begin, value, series=0, name=0):
    return Record(BEGIN_NS + begin, value, name, 7, 0, Kind.COUNTER, Flag.NONE, series)


def a_cycle(*threads, elapsed_ns=SECOND_NS, drift_ns=0, pid=4000):
    """Return a cycle of threads, each a list of records; their tids count from 4000."""
    end = Anchor(BEGIN_NS + elapsed_ns, UNIX_NS + elapsed_ns + drift_ns)
    records = [
        ThreadRecords.of(4000 + i, f"thread {i}", i == 0, pack_records(thread)) for i, thread in enumerate(threads)
    ]
    return Cycle(
        number=0,
        run_name="run",
        ranks=Ranks(3, 3, 8, 8),
        attempt=Attempt("run", 0, pid),
        pid=pid,
        begin_timestamp=Timestamp(),
        timestamp=Timestamp(batch=1),
        begin=Anchor(BEGIN_NS, UNIX_NS),
        end=end,
        names=NAMES,
        recorded=WindowRecords(lambda: records),
    )


def written(cycle, folder, *, drained=True, in_pairs=False):
    """Return the trace file of a cycle."""
    recipe = TraceRecipe("traces", f"{'drained' if drained else 'plain'}.json", "", in_pairs)
    with pytest.MonkeyPatch.context() as patch:
        if not drained:
            patch.setattr(Drain, "plan", lambda self, thread: None)
        return JSONTraceHandler.reopen(folder, recipe, "run", cycle.ranks, cycle.attempt).write(cycle)


def in_order(path):
    """Return the events of a file, as text, sorted."""
    return sorted(json.dumps(event, sort_keys=True) for event in events_of(path))


def events_of(path):
    trace = json.loads(path.read_text())
    return trace if isinstance(trace, list) else trace["traceEvents"]


def check_same(cycle, *, in_pairs=False):
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "traces")
        folder.mkdir()
        drained, plain = (written(cycle, folder, drained=is_drained, in_pairs=in_pairs) for is_drained in (True, False))
        assert in_order(drained) == in_order(plain)


@pytest.mark.parametrize("in_pairs", [False, True])
@pytest.mark.parametrize(
    "epochs", [[], [(BEGIN_NS + 4, 10)], [(BEGIN_NS + 4, 10), (BEGIN_NS + 5, 11), (BEGIN_NS + 7, 12)]]
)
def test_each_span_has_the_epoch_in_which_it_began(in_pairs, epochs):
    cycle = a_cycle([span(1, 2), span(3, 4), span(4, 5), span(0, 6), instant(6), span(8, 9)])
    cycle.begin_timestamp, cycle.epochs = Timestamp(epoch=9), epochs
    check_same(cycle, in_pairs=in_pairs)


def is_drained(cycle):
    return [bool(Drain(cycle).plan(thread)) for thread in cycle.threads]


def test_spans_that_nest_are_drained_and_others_are_not():
    nested = [span(1, 2), span(2, 2), span(2, 5), span(0, 5), span(5, 5), span(5, 9)]
    cut_in_any_order = [span(3, 4), span(0, 9, flags=Flag.CUT), span(2, 9, flags=Flag.CUT)]
    overlapping = [span(0, 5), span(3, 8)]
    hidden = [span(3, 5), span(0, 9), span(4, 9)]
    cycle = a_cycle(nested, cut_in_any_order, overlapping, hidden, [], [span(5, 4)])
    assert is_drained(cycle) == [True, True, False, False, False, False]
    check_same(cycle)


def test_threads_that_share_a_tid_or_a_contributed_file_are_left_to_python():
    cycle = a_cycle([span(0, 1)], [span(0, 1)])
    assert [bool(Drain(cycle, {"4001"}).plan(thread)) for thread in cycle.threads] == [True, False]
    twice = a_cycle([span(0, 1)])
    twice.threads.append(twice.threads[0])
    assert is_drained(twice) == [False, False]


@pytest.mark.parametrize("tid", [4000, "4000"])
def test_a_thread_with_contributed_events_gets_all_of_them_on_its_track(tmp_path, tid):
    file, traces = tmp_path / "kineto.json", tmp_path / "traces"
    traces.mkdir()
    op = {"ph": "X", "name": "aten::mm", "pid": 4000, "tid": tid, "ts": UNIX_NS / 1000, "dur": 1}
    file.write_text(json.dumps({"traceEvents": [op]}))
    paths = []
    for drained in (True, False):
        cycle = a_cycle([span(0, 10_000)], [span(0, 1), counter(1, 2)])
        cycle.files.append(file)
        paths.append(written(cycle, traces, drained=drained))
    assert in_order(paths[0]) == in_order(paths[1])
    assert len({event["tid"] for event in json.loads(paths[0].read_text())["traceEvents"] if event["ph"] == "X"}) == 2


def test_an_instant_of_a_source_leaves_its_thread_to_the_drain(tmp_path, monkeypatch):
    def fail(cycle: Cycle, thread: ThreadRecords) -> None:
        pytest.fail(f"{thread.name} is written event by event")

    cycle = a_cycle([span(0, 10), span(20, 30)])
    noted = SourceEvent("processors", "processors", BEGIN_NS + 5, None, 4000, {"cores": 2})
    cycle.contributions.events.add(noted)
    monkeypatch.setattr("kinetoscope.handlers.json_trace_handler.thread_events", fail)
    events = [event for event in events_of(written(cycle, tmp_path)) if event["ph"] != "M"]
    assert sorted(event["name"] for event in events) == ["processors", "work", "work"]
    assert len({event["tid"] for event in events}) == 1


@pytest.mark.parametrize("in_pairs", [False, True])
def test_op_that_outlasts_its_marker_in_one_of_several_files_is_truncated_there(tmp_path, in_pairs):
    file, another, traces = tmp_path / "kineto.json", tmp_path / "another.json", tmp_path / "traces"
    traces.mkdir()
    op = {"ph": "X", "name": "aten::mm", "pid": 4000, "tid": 4000, "ts": 9, "dur": 1.5}
    file.write_text(json.dumps({"baseTimeNanoseconds": UNIX_NS, "traceEvents": [op]}))
    another.write_text(json.dumps({"baseTimeNanoseconds": UNIX_NS, "traceEvents": [op | {"tid": 5}]}))
    cycle = a_cycle([span(0, 10_000)])
    cycle.files.extend([file, another])
    with load(written(cycle, traces, in_pairs=in_pairs)) as processor:
        assert processor.errors() == {}
        durations = processor.query("select dur from slice where name = 'aten::mm' order by dur")
    assert [row["dur"] for row in durations] == [1000, 1500]


def test_values_of_one_call_are_one_event_and_the_last_of_a_series_counts():
    values = [counter(5, 1, 0), counter(5, 2.5, 1), counter(5, 3, 6), counter(5, math.nan, 3), counter(5, 4, 3)]
    infinite = [counter(6, math.inf, 2), counter(6, -math.inf, 4), counter(7, math.nan)]
    cycle = a_cycle([*values, *infinite, counter(7, 1, name=1), counter(7, 2, name=1), instant(7), counter(7, 5)])
    assert is_drained(cycle) == [True]
    check_same(cycle)


@pytest.mark.parametrize("in_pairs", [False, True])
def test_last_value_of_each_string_counts_if_many_are_replaced_in_one_call(tmp_path, in_pairs):
    values = [counter(5, number, series=number % len(NAMES)) for number in range(995)]
    values += [
        counter(5, math.inf, series=1),
        counter(5, 7, series=6),
        counter(6, 1, series=6),
        counter(6, 2, series=0),
    ]
    cycle = a_cycle(values)
    assert is_drained(cycle) == [True]
    check_same(cycle, in_pairs=in_pairs)
    (tmp_path / "traces").mkdir()
    counts = [event for event in events_of(written(cycle, tmp_path / "traces")) if event["ph"] == "C"]
    assert [list(event["args"].values()) for event in counts] == [[989, 990, 991, 992, 7], [2]]
    assert counts[0]["args"]["work"] == 7
    assert counts[0]["not_finite"] == {"event/batch": "Infinity"}


def in_parts(records, *lengths):
    """Return a thread's records in parts of the given lengths, and what remains."""
    parts = [[records.pop(0) for _ in range(min(length, len(records)))] for length in lengths]
    return ThreadRecords(4000, "thread", True, [RecordsInMemory(pack_records(part)) for part in [*parts, records]])


@pytest.mark.parametrize("lengths", [(1,), (2, 1), (1, 1, 1, 1), (0, 3), (4,), (9,)])
def test_values_of_one_call_are_one_event_for_any_chunk_boundary(lengths):
    records = [span(1, 2), *(counter(5, number, number) for number in range(3)), span(0, 6), instant(7)]
    cycle = a_cycle([])
    cycle.threads[:] = [in_parts(records, *lengths)]
    assert is_drained(cycle) == [True]
    check_same(cycle)


def test_a_span_that_overlaps_one_of_an_earlier_part_is_left_to_python():
    cycle = a_cycle([])
    cycle.threads[:] = [in_parts([span(0, 5), span(6, 7), span(3, 8)], 1, 1)]
    assert is_drained(cycle) == [False]


def test_a_call_with_more_values_than_the_buffer_holds_is_one_event(tmp_path):
    cycle = a_cycle([counter(5, i, 7 + i) for i in range(300)])
    cycle.names = NAMES + [SpanName(f"{i}" * 3000) for i in range(300)]
    assert is_drained(cycle) == [True]
    check_same(cycle)


def test_invalid_records_are_refused_and_never_read_out_of_bounds():
    cycle = a_cycle([span(0, 1)._replace(name=len(NAMES))], [instant(0)._replace(kind=9)], [counter(0, 1, series=99)])
    assert is_drained(cycle) == [False, False, False]


@given(st.floats() | st.integers(-(2**63) + 1, 2**63 - 1))
@example(-0.0)
@example(5e-324)
@example(1.7976931348623157e308)
@example(1e22)
def test_a_counters_value_comes_back_as_it_was(value):
    check_same(a_cycle([counter(0, value)]))


def test_numbers_have_a_point_in_every_locale():
    before = locale.setlocale(locale.LC_NUMERIC)
    try:
        locale.setlocale(locale.LC_NUMERIC, "de_DE.UTF-8")
    except locale.Error:
        pytest.skip("this machine has no locale with a decimal comma")
    try:
        check_same(a_cycle([counter(0, 0.25)]))
    finally:
        locale.setlocale(locale.LC_NUMERIC, before)


@given(st.integers(-999_999, 999_999), st.integers(1, 2**50), st.integers(-(2**50), 2**50))
def test_the_clock_line_is_that_of_python_to_the_nanosecond(drift_ns, elapsed_ns, at_ns):
    cycle = a_cycle([span(at_ns, at_ns + 12_345)], elapsed_ns=elapsed_ns, drift_ns=drift_ns)
    assert is_drained(cycle) == [abs(drift_ns) < elapsed_ns]
    check_same(cycle)


times = st.integers(-50, 50)
names = st.integers(0, len(NAMES) - 1)
numbers = st.integers(-5, 5) | st.floats()
spans = st.builds(
    lambda begin, length, name, batch, flags: span(begin, begin + length, name, batch, flags),
    times,
    st.sampled_from([0, 1, 2, 30]),
    names,
    st.integers(0, 2**32 - 1),
    st.sampled_from([Flag.NONE, Flag.CUT]),
)
records = spans | st.builds(instant, times, names) | st.builds(counter, times, numbers, names, names)


@given(st.lists(st.lists(records, max_size=8), max_size=4), st.sampled_from([-40, -1, 0, 1, 40]), st.booleans())
def test_any_records_give_the_same_events(threads, drift_ns, is_container):
    ordered = [sorted(thread, key=lambda record: record.end if record.kind == Kind.SPAN else 0) for thread in threads]
    check_same(a_cycle(*ordered, elapsed_ns=50, drift_ns=drift_ns, pid=1 if is_container else 4000))


@given(st.lists(st.lists(spans | st.builds(instant, times, names), max_size=8), max_size=4))
def test_any_spans_give_the_same_pairs(threads):
    ordered = [sorted(thread, key=lambda record: record.end if record.kind == Kind.SPAN else 0) for thread in threads]
    check_same(a_cycle(*ordered, elapsed_ns=50), in_pairs=True)


def test_pairs_are_written_in_order_of_time_and_match(tmp_path):
    nested = [
        span(1, 2, 0),
        span(2, 2, 1),
        span(2, 5, 2),
        counter(6, 3, 5),
        span(0, 7, 3),
        instant(7, 5),
        span(7, 9, 6),
    ]
    traces = tmp_path / "traces"
    traces.mkdir()
    path = written(a_cycle(nested), traces, in_pairs=True)
    events = [event for event in events_of(path) if event["ph"] in "BECi"]
    names = [
        (event["ph"], NAMES.index(next(name for name in NAMES if name.name == event["name"]))) for event in events[:7]
    ]
    assert names == [("B", 3), ("B", 0), ("E", 0), ("B", 2), ("B", 1), ("E", 1), ("E", 2)]
    assert [event["ts"] for event in events] == sorted(event["ts"] for event in events)


def test_args_of_a_name_are_in_each_of_its_events():
    cycle = a_cycle([span(0, 5, len(NAMES)), instant(7, len(NAMES))])
    cycle.names = [*NAMES, SpanName("event/forward", (), (("microbatch", 3), ('"', -1)))]
    assert is_drained(cycle) == [True]
    check_same(cycle)
    check_same(cycle, in_pairs=True)


def test_unix_time_that_was_stepped_follows_the_monotonic_clock():
    cycle = a_cycle([span(0, 10), instant(11)], drift_ns=-10 * SECOND_NS)
    assert cycle.clock.stepped
    assert cycle.clock.slope_ns == (0, 1)
    check_same(cycle)


def test_perfetto_reads_a_drained_file_without_an_error(tmp_path):
    spans = [span(10 * i, 10 * i + 9, name=i % len(NAMES), batch=i) for i in range(20_000)]
    values = [counter(5, 0.1, 2), counter(5, math.inf, 1), counter(5, 3, 4)]
    cycle = a_cycle(spans, [instant(3, name=2), *values, span(0, 50, flags=Flag.CUT)], drift_ns=-700)
    assert is_drained(cycle) == [True, True]
    traces = tmp_path / "traces"
    traces.mkdir()
    with load(written(cycle, traces)) as processor:
        assert processor.errors() == {}
        (row,) = processor.query("select count(*) as n from slice")
        assert row["n"] == 20_002
