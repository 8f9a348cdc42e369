"""Shared by tests of the recorder."""

from kinetoscope.recording.markers.native_recorder import NativeRecorder, NativeSpan
from kinetoscope.spool.record import Kind
from kinetoscope.testing import FakeClock

ON = 2


class FakeClockRecorder:
    """A recorder with a clock that ticks by one at each reading, and its spans."""

    __test__ = False

    def __init__(self, clock=None):
        self.clock = clock or FakeClock(monotonic_ns=1, tick_ns=1)
        self.recorder = NativeRecorder(self.clock)

    def span(self, name="span", mask=ON, edges=0):
        return NativeSpan(self.recorder, self.recorder.names.intern(name), mask, edges)

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
