"""Shared by tests of the recorder: one of the two, in C or in Python, with its spans."""

import pytest

from kinetoscope.live.record import Kind
from kinetoscope.recording import pure_recorder
from kinetoscope.testing import FakeClock

ON = 2


class Twin:
    """One of the two recorders, with a clock that ticks by one at each reading."""

    def __init__(self, recorder_type, span_type, clock=None):
        self.clock = clock or FakeClock(monotonic_ns=1, tick_ns=1)
        self.recorder = recorder_type(self.clock)
        self.span_type = span_type

    def span(self, name="span", mask=ON, edges=0):
        return self.span_type(self.recorder, self.recorder.names.intern(name), mask, edges)

    def open(self):
        self.recorder.open_window()
        self.recorder.action = ON

    def close(self):
        self.recorder.action = 0
        return self.recorder.close_window().threads()

    def records(self):
        return [record for thread in self.close() for record in thread.records()]

    def spans(self):
        """(name, begin, end) by begin, after closing the window."""
        names = self.recorder.names.names
        spans = [
            (names[record.name].name, record.begin, record.end) for record in self.records() if record.kind == Kind.SPAN
        ]
        return sorted(spans, key=lambda span: span[1])


def make_recorder(kind):
    if kind == "pure":
        return Twin(pure_recorder.PureRecorder, pure_recorder.PureSpan)
    pytest.importorskip("kinetoscope._native", reason="the native recorder was not built")
    from kinetoscope.recording import native_recorder

    return Twin(native_recorder.NativeRecorder, native_recorder.NativeSpan)
