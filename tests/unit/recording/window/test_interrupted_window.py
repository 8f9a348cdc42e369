"""A signal that comes while a window closes: what was recorded is saved, once, and then the signal takes effect."""

import contextlib
import signal
import threading

import pytest

from kinetoscope import Profiler, cyclic_schedule
from kinetoscope.core.clock.clock import SystemClock
from kinetoscope.core.job.ranks import detect_attempt, detect_ranks
from kinetoscope.recording.markers.process import hold_signals
from kinetoscope.recording.run.clock_comparison import ClockComparison
from kinetoscope.recording.run.lifecycle import RunLifecycle
from kinetoscope.recording.run.shutdown import RunShutdown
from kinetoscope.recording.run.window_controller import WindowController
from kinetoscope.testing import MemoryTraceHandler
from support.signal_injection import InjectedSignals

SIGNALS = [signal.SIGINT, signal.SIGTERM]


def train(presses, profiler):
    step = profiler.marker("step")
    with profiler:
        for number in profiler.batches(range(3)):
            with step:
                pass
            if number == 1:
                presses.start()


def at_each_place(on_signal, method, numbers, every=1):
    """Train once for each place in a method, or for one of ``every`` places, where ``on_signal(profiler)`` handles the
    signal. Gives of each training run whether it went on to its end, and its trace handler."""
    for place in range(1, 10_000, every):
        presses, handler = InjectedSignals(numbers[place % len(numbers)], place, method), MemoryTraceHandler()
        profiler = Profiler(cyclic_schedule(active=2, warmup=0), handler, spool_folder=False)
        handle, went_on = (lambda number, frame, profiler=profiler: on_signal(profiler)), True
        before = [signal.signal(number, handle) for number in SIGNALS]
        try:
            train(presses, profiler)
        except KeyboardInterrupt:
            went_on = False
        finally:
            presses.stop()
            after = [signal.signal(*pair) for pair in zip(SIGNALS, before, strict=True)]
            profiler.close()
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
    num_runs = 0
    for went_on, handler in at_each_place(on_signal, WindowController.save, SIGNALS):
        assert went_on is (on_signal is close)
        assert ([cycle.number for cycle in handler.cycles], len(handler.spans("step"))) == ([0], 2)
        num_runs += 1
    assert num_runs > 50


def test_another_close_finishes_one_that_a_signal_breaks_off():
    """Ctrl-C waits for its end; the user's own handlers of other signals may raise anywhere."""
    runs = list(at_each_place(interrupt, RunLifecycle._close, [signal.SIGTERM], every=4))
    assert len(runs) > 25
    for _, handler in runs:
        assert ([cycle.number for cycle in handler.cycles], len(handler.spans("step"))) == ([0], 2)


def test_spool_is_deleted_completely_even_if_a_signal_interrupts_the_end(tmp_path):
    num_broken_off = 0
    for place in range(1, 1_000, 3):
        presses = InjectedSignals(signal.SIGTERM, place, RunShutdown.finish_files)
        handler = MemoryTraceHandler()
        profiler = Profiler(cyclic_schedule(active=2, warmup=0), handler, spool_folder=tmp_path)
        before = signal.signal(signal.SIGTERM, lambda number, frame, profiler=profiler: interrupt(profiler))
        try:
            train(presses, profiler)
        except KeyboardInterrupt:
            num_broken_off += 1
        finally:
            presses.stop()
            signal.signal(signal.SIGTERM, before)
        profiler.close()
        assert not list(tmp_path.glob("live/*"))
        if presses.num_places < place:
            break
    assert num_broken_off > 10


def test_a_cycle_that_waits_for_clocks_is_delivered_once_though_ctrl_c_ends_the_wait():
    for place in range(1, 1_000):
        delivered = []
        comparison = ClockComparison(SystemClock(), detect_ranks(), detect_attempt(detect_ranks()))
        comparison._pending[0] = lambda delivered=delivered: delivered.append(0)
        presses = InjectedSignals(signal.SIGINT, place, ClockComparison.finish_windows)
        presses.start()
        with contextlib.suppress(KeyboardInterrupt):
            comparison.finish_windows(0.0)
        presses.stop()
        comparison.finish_windows(0.0)
        assert delivered == [0]
        if presses.num_places < place:
            break
    assert place > 10


def test_deferred_signals_all_take_effect_if_the_first_raises_on_this_thread_only():
    seen = []

    def handle(number, frame):
        seen.append(number)
        raise KeyboardInterrupt

    before = [signal.signal(number, handle) for number in SIGNALS]
    try:
        with pytest.raises(KeyboardInterrupt), hold_signals():
            for number in SIGNALS:
                signal.raise_signal(number)
            assert seen == []
            with hold_signals():
                signal.raise_signal(signal.SIGINT)
            assert seen == []
        assert [signal.getsignal(number) for number in SIGNALS] == [handle, handle]
        thread = threading.Thread(target=lambda: hold_signals().__enter__())
        thread.start()
        thread.join()
    finally:
        after = [signal.signal(*pair) for pair in zip(SIGNALS, before, strict=True)]
    assert (seen, after) == ([*SIGNALS, signal.SIGINT], [handle, handle])
