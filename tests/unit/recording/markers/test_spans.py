"""Spans and counters."""

import contextlib
import gc
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetoscope.recording.markers.native_recorder import NativeSpan
from kinetoscope.spool.record import Flag, Kind, pack_records, unpack_records
from support.recorders import ON, FakeClockRecorder


def test_a_with_returns_the_span(native):
    span = native.span()
    with span as inactive:
        assert inactive is span
    native.open()
    with span as active:
        assert active is span


def test_overlapping_with_blocks_of_one_span_keep_their_own_start(native):
    span = native.span()
    native.open()

    def generate():
        with span:
            yield

    generators = [generate() for _ in range(3)]
    for generator in generators:
        next(generator)
    for position in (1, 0, 2):
        generators[position].close()
    assert [end - begin for _, begin, end in native.spans()] == [4, 2, 3]


def test_a_thousand_generators_may_be_open_at_once(native):
    span = native.span()
    native.open()

    def generate():
        with span:
            yield

    generators = [generate() for _ in range(1000)]
    for generator in generators:
        next(generator)
    for generator in generators:
        generator.close()
    spans = native.spans()
    assert len(spans) == 1000
    assert {end - begin for _, begin, end in spans} == {1000}


def test_a_generator_left_open_and_collected_ends_its_span(native):
    span = native.span()
    native.open()

    def generate():
        with span:
            yield

    generator = generate()
    next(generator)
    del generator
    gc.collect()
    (record,) = native.records()
    assert not record.flags & Flag.CUT


def test_a_span_begun_inactive_does_not_end_one_begun_active(native):
    span = native.span()
    native.recorder.open_window()
    with span:
        native.recorder.action = ON
        with span:
            pass
    assert len(native.spans()) == 1


def test_span_that_ends_inactive_is_recorded(native):
    span = native.span()
    native.open()
    with span:
        native.recorder.action = 0
    assert len(native.spans()) == 1


def test_a_span_ends_in_the_window_it_began_in_or_not_at_all(native):
    span = native.span()
    native.open()
    with span:
        (cut,) = native.records()
        native.open()
    assert cut.flags & Flag.CUT
    assert native.spans() == []


def test_depth_counts_the_spans_open_at_the_start(native):
    outer, inner = native.span("outer"), native.span("inner")
    native.open()
    for _ in range(2):
        with outer, inner, inner:
            inner.instant()
    depths = [(record.kind, record.depth) for record in native.records()]
    assert depths == [(Kind.INSTANT, 3), (Kind.SPAN, 2), (Kind.SPAN, 1), (Kind.SPAN, 0)] * 2


def test_finalizer_may_start_a_span_while_another_starts(native):
    span, tokens = native.span(), []

    class Cycle:
        def __init__(self):
            self.me = self

        def __del__(self):
            tokens.append(span.begin())

    native.open()
    before = gc.get_threshold()
    for _ in range(100):
        Cycle()
        gc.set_threshold(1)
        tokens.append(span.begin())
        gc.set_threshold(*before)
    gc.collect()
    for token in tokens:
        span.end(token)
    assert len(tokens) == 200
    assert len({begin for _, begin, _ in native.spans()}) == 200


# -- enter and exit ------------------------------------------------------------------------------------------------


def test_looking_up_exit_without_calling_it_changes_nothing(native):
    span, other = native.span(), native.span("other")
    native.open()
    for _ in range(3):
        assert hasattr(span, "__exit__")
        assert callable(span.__enter__)
    kept = [span.__exit__ for _ in range(5)]
    with other, span:
        pass
    del kept
    with span:
        pass
    assert [name for name, _, _ in native.spans()] == ["other", "span", "span"]


def test_an_exit_method_that_was_kept_does_not_end_a_later_span(native):
    span, other = native.span(), native.span("other")
    native.open()
    with span:
        pass
    kept = span.__exit__
    with other:
        kept(None, None, None)
    assert [(name, end - begin) for name, begin, end in native.spans()] == [("span", 1), ("other", 2)]


def test_enter_and_exit_may_be_called_by_hand(native):
    span = native.span()
    native.open()
    span.__enter__()
    span.__enter__()
    span.__exit__(None, None, None)
    span.__exit__(None, None, None)
    assert len(native.spans()) == 2
    assert native.recorder.window == 0


def test_enter_and_exit_may_be_kept_and_called_many_times(native):
    span = native.span()
    native.open()
    enter, leave = span.__enter__, span.__exit__
    for _ in range(3):
        enter()
        leave(None, None, None)
    records = native.records()
    assert len(records) == 3
    assert not any(record.flags & Flag.CUT for record in records)


def test_exit_without_enter_does_nothing(native):
    span = native.span()
    native.open()
    span.__exit__(None, None, None)
    assert native.records() == []


def test_an_exit_stack_ends_the_spans_that_it_began(native):
    outer, inner = native.span("outer"), native.span("inner")
    native.open()
    with contextlib.ExitStack() as stack:
        stack.enter_context(outer)
        stack.enter_context(inner)
        stack.enter_context(outer)
        with inner:
            pass
    records = native.records()
    assert len(records) == 4
    assert not any(record.flags & Flag.CUT for record in records)


def test_a_stack_entered_inactive_does_not_end_another_span(native):
    span = native.span()
    native.recorder.open_window()
    with contextlib.ExitStack() as outer:
        native.recorder.action = ON
        outer.enter_context(span)
        with contextlib.ExitStack() as inner:
            native.recorder.action = 0
            inner.enter_context(span)
            native.recorder.action = ON
        span.instant()
    spans = native.spans()
    assert len(spans) == 1
    assert spans[0][2] - spans[0][1] > 1


def test_a_subclass_may_wrap_enter_and_exit(native):
    class Wrapped(NativeSpan):
        def __enter__(self):
            return super().__enter__()

        def __exit__(self, *exception):
            super().__exit__(*exception)

    span = Wrapped(native.recorder, native.recorder.names.intern("wrapped"), ON)
    native.open()
    with span, span:
        pass
    records = native.records()
    assert len(records) == 2
    assert not any(record.flags & Flag.CUT for record in records)


# -- tokens --------------------------------------------------------------------------------------------------------


def test_tokens_end_in_any_order_and_only_once(native):
    span = native.span()
    native.open()
    first, second = span.begin(), span.begin()
    span.end(first)
    with span:
        span.end(first)
    span.end(second)
    span.end(second)
    span.end(None)
    assert len(native.spans()) == 3


def test_a_token_that_is_kept_after_its_end_ends_no_other_span(native):
    span = native.span()
    native.open()
    kept = [span.begin() for _ in range(3)]
    for token in kept:
        span.end(token)
    later = [span.begin() for _ in range(3)]
    for token in kept:
        span.end(token)
    assert len(native.spans()) == 6
    del later


def test_an_abandoned_span_is_not_recorded(native):
    span = native.span()
    native.open()
    token = span.begin()
    span.abandon(token)
    span.end(token)
    span.abandon(None)
    assert native.records() == []


def test_a_token_ends_on_another_thread_and_stays_on_its_own_track(native):
    span = native.span()
    native.open()
    token = span.begin()
    thread = threading.Thread(target=span.end, args=(token,))
    thread.start()
    thread.join()
    (track,) = native.close()
    assert track.is_main


def test_a_native_span_accepts_only_a_recorder_and_only_its_tokens(native):
    with pytest.raises(TypeError, match="recorder"):
        NativeSpan(3, 0, 0)
    with pytest.raises(TypeError, match="begin"):
        native.span().end("token")
    with pytest.raises(TypeError, match="span"):
        type(native.span()).__mro__[1].__dict__["__exit__"].__get__(3, int)


# -- counters ------------------------------------------------------------------------------------------------------


def test_a_counter_has_a_record_for_each_value(native):
    span = native.span("loss")
    native.open()
    span.counter({"a": 1, "b": 0.5})
    span.counter(7)
    span.counter(0.25)
    names = native.recorder.names.names
    records = native.records()
    assert [(names[record.series].name, record.end) for record in records] == [
        ("a", 1),
        ("b", 0.5),
        ("loss", 7),
        ("loss", 0.25),
    ]
    assert records[0].begin == records[1].begin


@given(st.lists(st.one_of(st.integers(), st.floats(allow_nan=False)), min_size=1, max_size=5))
def test_any_number_is_recorded_in_its_packed_form(values):
    native = FakeClockRecorder()
    native.open()
    span = native.span("n")
    for value in values:
        span.counter(value)
        span.counter({"v": value})
    found = [(record.end, record.flags) for record in native.records()]
    packed = pack_records((0, value, 0, 0, 0, Kind.COUNTER, 0, 0) for value in values for _ in range(2))
    assert found == [(record.end, record.flags) for record in unpack_records(packed)]


def test_a_counter_of_many_values_keeps_them_all(native):
    span = native.span()
    native.open()
    span.counter({f"v{n}": n for n in range(500)})
    assert [record.end for record in native.records()] == list(range(500))


def test_a_counter_takes_its_values_from_anything_that_plain_values_understands(native):
    class Unusual(NativeSpan):
        def plain_values(self, values):
            return {"odd": len(values)}

    native.open()
    span = Unusual(native.recorder, native.recorder.names.intern("odd"), ON)
    span.counter("four")
    assert [record.end for record in native.records()] == [4]
