"""Spans and counters, with the recorder in C and in Python: both pass the same tests."""

import contextlib
import gc
import signal
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetoscope.live.record import Flag, Kind
from kinetoscope.recording.pure_recorder import PureSpan
from pressing import Presses
from recorders import ON, make_recorder


def test_a_with_returns_the_span(twin):
    span = twin.span()
    with span as inactive:
        assert inactive is span
    twin.open()
    with span as active:
        assert active is span


def test_overlapping_withs_of_one_span_each_keep_their_own_begin(twin):
    span = twin.span()
    twin.open()

    def generate():
        with span:
            yield

    generators = [generate() for _ in range(3)]
    for generator in generators:
        next(generator)
    for position in (1, 0, 2):
        generators[position].close()
    assert [end - begin for _, begin, end in twin.spans()] == [4, 2, 3]


def test_a_thousand_generators_may_be_open_at_once(twin):
    span = twin.span()
    twin.open()

    def generate():
        with span:
            yield

    generators = [generate() for _ in range(1000)]
    for generator in generators:
        next(generator)
    for generator in generators:
        generator.close()
    spans = twin.spans()
    assert len(spans) == 1000
    assert {end - begin for _, begin, end in spans} == {1000}


def test_a_generator_left_open_and_collected_ends_its_span(twin):
    span = twin.span()
    twin.open()

    def generate():
        with span:
            yield

    generator = generate()
    next(generator)
    del generator
    gc.collect()
    (record,) = twin.records()
    assert not record.flags & Flag.CUT


def test_a_span_begun_inactive_does_not_end_one_begun_active(twin):
    span = twin.span()
    twin.recorder.open_window()
    with span:
        twin.recorder.action = ON
        with span:
            pass
    assert len(twin.spans()) == 1


def test_a_span_that_ends_inactive_is_recorded_all_the_same(twin):
    span = twin.span()
    twin.open()
    with span:
        twin.recorder.action = 0
    assert len(twin.spans()) == 1


def test_a_span_ends_in_the_window_it_began_in_or_not_at_all(twin):
    span = twin.span()
    twin.open()
    with span:
        (cut,) = twin.records()
        twin.open()
    assert cut.flags & Flag.CUT
    assert twin.spans() == []


def test_depth_counts_the_spans_open_at_the_begin(twin):
    outer, inner = twin.span("outer"), twin.span("inner")
    twin.open()
    for _ in range(2):
        with outer, inner, inner:
            inner.instant()
    depths = [(record.kind, record.depth) for record in twin.records()]
    assert depths == [(Kind.INSTANT, 3), (Kind.SPAN, 2), (Kind.SPAN, 1), (Kind.SPAN, 0)] * 2


def test_a_finalizer_may_begin_a_span_while_one_is_begun(twin):
    span, tokens = twin.span(), []

    class Cycle:
        def __init__(self):
            self.me = self

        def __del__(self):
            tokens.append(span.begin())

    twin.open()
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
    assert len({begin for _, begin, _ in twin.spans()}) == 200


@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_with_that_ctrl_c_keeps_from_beginning_leaves_no_span_open(is_recorded):
    """With the recorder in Python. Where the one in C begins a span, no signal is handled."""
    twin, num_begun = make_recorder("pure"), 0
    span, other = twin.span("broken off"), twin.span("other")
    with other:  # the thread's first span has more places
        pass
    twin.open()
    twin.recorder.action = ON * is_recorded
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        for place in range(1, 10):
            Presses(signal.SIGINT, place, PureSpan.__enter__).start()
            with contextlib.suppress(KeyboardInterrupt):
                span.__enter__()
                num_begun += 1
            sys.settrace(None)
    finally:
        sys.settrace(None)
        signal.signal(signal.SIGINT, before)
    assert 0 < num_begun < 8
    assert len(twin.recorder.local.thread.open) == num_begun
    assert len(twin.spans()) == num_begun * is_recorded


# -- enter and exit ------------------------------------------------------------------------------------------------


def test_looking_up_exit_without_calling_it_changes_nothing(twin):
    span, other = twin.span(), twin.span("other")
    twin.open()
    for _ in range(3):
        assert hasattr(span, "__exit__")
        assert callable(span.__enter__)
    kept = [span.__exit__ for _ in range(5)]
    with other, span:
        pass
    del kept
    with span:
        pass
    assert [name for name, _, _ in twin.spans()] == ["other", "span", "span"]


def test_an_exit_method_that_was_kept_does_not_end_a_later_span(twin):
    span, other = twin.span(), twin.span("other")
    twin.open()
    with span:
        pass
    kept = span.__exit__
    with other:
        kept(None, None, None)
    assert [(name, end - begin) for name, begin, end in twin.spans()] == [("span", 1), ("other", 2)]


def test_enter_and_exit_may_be_called_by_hand(twin):
    span = twin.span()
    twin.open()
    span.__enter__()
    span.__enter__()
    span.__exit__(None, None, None)
    span.__exit__(None, None, None)
    assert len(twin.spans()) == 2
    assert twin.recorder.window == 0


def test_enter_and_exit_may_be_kept_and_called_many_times(twin):
    span = twin.span()
    twin.open()
    enter, leave = span.__enter__, span.__exit__
    for _ in range(3):
        enter()
        leave(None, None, None)
    records = twin.records()
    assert len(records) == 3
    assert not any(record.flags & Flag.CUT for record in records)


def test_exit_without_enter_does_nothing(twin):
    span = twin.span()
    twin.open()
    span.__exit__(None, None, None)
    assert twin.records() == []


def test_an_exit_stack_ends_the_spans_that_it_began(twin):
    outer, inner = twin.span("outer"), twin.span("inner")
    twin.open()
    with contextlib.ExitStack() as stack:
        stack.enter_context(outer)
        stack.enter_context(inner)
        stack.enter_context(outer)
        with inner:
            pass
    records = twin.records()
    assert len(records) == 4
    assert not any(record.flags & Flag.CUT for record in records)


def test_a_stack_entered_inactive_does_not_end_another_span(twin):
    span = twin.span()
    twin.recorder.open_window()
    with contextlib.ExitStack() as outer:
        twin.recorder.action = ON
        outer.enter_context(span)
        with contextlib.ExitStack() as inner:
            twin.recorder.action = 0
            inner.enter_context(span)
            twin.recorder.action = ON
        span.instant()
    spans = twin.spans()
    assert len(spans) == 1
    assert spans[0][2] - spans[0][1] > 1


def test_a_subclass_may_wrap_enter_and_exit(twin):
    class Wrapped(twin.span_type):
        def __enter__(self):
            return super().__enter__()

        def __exit__(self, *exception):
            super().__exit__(*exception)

    span = Wrapped(twin.recorder, twin.recorder.names.intern("wrapped"), ON)
    twin.open()
    with span, span:
        pass
    records = twin.records()
    assert len(records) == 2
    assert not any(record.flags & Flag.CUT for record in records)


# -- tokens --------------------------------------------------------------------------------------------------------


def test_tokens_end_in_any_order_and_only_once(twin):
    span = twin.span()
    twin.open()
    first, second = span.begin(), span.begin()
    span.end(first)
    with span:
        span.end(first)
    span.end(second)
    span.end(second)
    span.end(None)
    assert len(twin.spans()) == 3


def test_a_token_that_is_kept_after_its_end_ends_no_other_span(twin):
    span = twin.span()
    twin.open()
    kept = [span.begin() for _ in range(3)]
    for token in kept:
        span.end(token)
    later = [span.begin() for _ in range(3)]
    for token in kept:
        span.end(token)
    assert len(twin.spans()) == 6
    del later


def test_an_abandoned_span_is_not_recorded(twin):
    span = twin.span()
    twin.open()
    token = span.begin()
    span.abandon(token)
    span.end(token)
    span.abandon(None)
    assert twin.records() == []


def test_a_token_ends_on_another_thread_and_stays_on_its_own_track(twin):
    span = twin.span()
    twin.open()
    token = span.begin()
    thread = threading.Thread(target=span.end, args=(token,))
    thread.start()
    thread.join()
    (track,) = twin.close()
    assert track.is_main


def test_a_native_span_accepts_only_a_recorder_and_only_its_tokens(native):
    with pytest.raises(TypeError, match="recorder"):
        native.span_type(3, 0, 0)
    with pytest.raises(TypeError, match="begin"):
        native.span().end("token")
    with pytest.raises(TypeError, match="span"):
        type(native.span()).__mro__[1].__dict__["__exit__"].__get__(3, int)


# -- counters ------------------------------------------------------------------------------------------------------


def test_a_counter_has_a_record_for_each_value(twin):
    span = twin.span("loss")
    twin.open()
    span.counter({"a": 1, "b": 0.5})
    span.counter(7)
    span.counter(0.25)
    names = twin.recorder.names.names
    records = twin.records()
    assert [(names[record.series].name, record.end) for record in records] == [
        ("a", 1),
        ("b", 0.5),
        ("loss", 7),
        ("loss", 0.25),
    ]
    assert records[0].begin == records[1].begin


@given(st.lists(st.one_of(st.integers(), st.floats(allow_nan=False)), min_size=1, max_size=5))
def test_both_recorders_write_the_same_record_for_a_number(values):
    packed = []
    for kind in ("pure", "native"):
        twin = make_recorder(kind)
        twin.open()
        span = twin.span("n")
        for value in values:
            span.counter(value)
            span.counter({"v": value})
        packed.append([record._replace(begin=0) for record in twin.records()])
    assert packed[0] == packed[1]


def test_a_counter_of_many_values_keeps_them_all(twin):
    span = twin.span()
    twin.open()
    span.counter({f"v{n}": n for n in range(500)})
    assert [record.end for record in twin.records()] == list(range(500))


def test_a_counter_takes_its_values_from_anything_that_plain_values_understands(native):
    class Odd(native.span_type):
        def plain_values(self, values):
            return {"odd": len(values)}

    native.open()
    span = Odd(native.recorder, native.recorder.names.intern("odd"), ON)
    span.counter("four")
    assert [record.end for record in native.records()] == [4]
