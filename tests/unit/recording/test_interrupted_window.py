"""A signal that comes while a window closes: what was recorded is saved, once, and then the signal takes effect."""

import dis
import os
import signal
import sys
import threading

import pytest

import kinetoscope
from kinetoscope import Profiler, cyclic_schedule
from kinetoscope.recording.process import signals_held
from kinetoscope.recording.run import Run
from kinetoscope.testing import MemoryTraceHandler

OURS = os.path.dirname(kinetoscope.__file__)
SIGNALS = [signal.SIGINT, signal.SIGTERM]
HANDLED_AFTER = ("CALL", "CALL_FUNCTION_EX", "RESUME", "JUMP_BACKWARD")  # Python handles a signal after these only


class Presses:
    """Raises a signal at one place in our code, of all at which Python may handle one while a window is saved."""

    def __init__(self, number, place):
        self._number, self._place = number, place
        self._depth = self.num_places = 0
        self._is_over = False

    def trace(self, frame, event, argument):
        begins = self._depth > 0 or frame.f_code is Run.save_window.__code__
        if self._is_over or not begins or not frame.f_code.co_filename.startswith(OURS):
            return None
        self._depth += 1
        frame.f_trace_opcodes = True
        before = [""]

        def in_frame(frame, event, argument):
            if event == "return":
                self._depth -= 1
                self._is_over |= self._depth == 0
            elif event == "opcode" and not self._is_over:
                is_place, before[0] = before[0] in HANDLED_AFTER, dis.opname[frame.f_code.co_code[frame.f_lasti]]
                self.num_places += is_place
                if is_place and self.num_places == self._place:
                    signal.raise_signal(self._number)
            return in_frame

        return in_frame


def train(presses, profiler):
    step = profiler.marker("step")
    with profiler:
        for number in profiler.batches(range(3)):
            with step:
                pass
            if number == 1:
                sys.settrace(presses.trace)


def at_each_place(on_signal):
    """Trains once for each place, where ``on_signal(profiler)`` handles the signal. Gives of each training whether it
    went on to its end, and its trace handler."""
    for place in range(1, 10_000):
        presses, handler = Presses(SIGNALS[place % 2], place), MemoryTraceHandler()
        profiler = Profiler(cyclic_schedule(active=2, warmup=0), handler, live_folder=False)
        handle, went_on = (lambda number, frame, profiler=profiler: on_signal(profiler)), True
        before = [signal.signal(number, handle) for number in SIGNALS]
        try:
            train(presses, profiler)
        except KeyboardInterrupt:
            went_on = False
        finally:
            sys.settrace(None)
            after = [signal.signal(*pair) for pair in zip(SIGNALS, before, strict=True)]
        assert after == [handle, handle]
        if presses.num_places < place:
            break
        yield went_on, handler


def interrupt(profiler):
    raise KeyboardInterrupt


def close(profiler):
    profiler.close()


@pytest.mark.parametrize("on_signal", [interrupt, close])
def test_wherever_it_comes_the_window_is_saved_once(on_signal):
    trainings = list(at_each_place(on_signal))
    assert len(trainings) > 50
    for went_on, handler in trainings:
        assert went_on is (on_signal is close)
        assert ([cycle.number for cycle in handler.cycles], len(handler.spans("step"))) == ([0], 2)


def test_held_signals_all_take_effect_though_the_first_raises_and_another_thread_has_none_to_hold():
    seen = []

    def handle(number, frame):
        seen.append(number)
        raise KeyboardInterrupt

    before = [signal.signal(number, handle) for number in SIGNALS]
    try:
        with pytest.raises(KeyboardInterrupt), signals_held():
            for number in SIGNALS:
                signal.raise_signal(number)
            assert seen == []
            with signals_held():
                signal.raise_signal(signal.SIGINT)
            assert seen == []
        assert [signal.getsignal(number) for number in SIGNALS] == [handle, handle]
        thread = threading.Thread(target=lambda: signals_held().__enter__())
        thread.start()
        thread.join()
    finally:
        after = [signal.signal(*pair) for pair in zip(SIGNALS, before, strict=True)]
    assert (seen, after) == ([*SIGNALS, signal.SIGINT], [handle, handle])
