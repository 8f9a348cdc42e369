"""SIGTERM saves the run and ends the process, wherever another signal's handler raises meanwhile.

A signal to the process group ends DataLoader workers, too, and torch's handler of SIGCHLD raises once for each loader.
"""

import os
import signal

import pytest

from kinetoscope import Profiler, cyclic_schedule
from kinetoscope.recording.markers.process import TerminationHandler, this_process
from kinetoscope.testing import MemoryTraceHandler
from support.signal_injection import InjectedSignals

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGCHLD"), reason="there are no signals of children")


def terminate_at(place, caplog, monkeypatch):
    """Train, and raise SIGCHLD at that place of the handler of SIGTERM.

    Return the places so far, the trace handler, and the numbers of the signals by which the process would have ended.
    """
    raised, ended_by = [], []

    def handle(number, frame):
        if not raised:
            raised.append(number)
            raise RuntimeError("DataLoader worker (pid 1) is killed by signal: Terminated.")

    caplog.clear()
    presses, handler = InjectedSignals(signal.SIGCHLD, place, TerminationHandler._on_signal), MemoryTraceHandler()
    monkeypatch.setattr(os, "kill", lambda pid, number: ended_by.append(number))
    before = [signal.signal(signal.SIGCHLD, handle), signal.getsignal(signal.SIGTERM)]
    profiler = Profiler(cyclic_schedule(active=4, warmup=0), handler, spool_folder=False, quiet=True)
    try:
        profiler.start()
        with profiler.marker("step"):
            pass
        profiler.step()
        presses.start()
        this_process._termination._on_signal(signal.SIGTERM, None)
    except RuntimeError:
        assert place == 1  # before the first instruction: training ends with torch's error, and saves as it does
        profiler.close()
        ended_by.append(signal.SIGTERM)
    finally:
        presses.stop()
        signal.signal(signal.SIGCHLD, before[0])
        signal.signal(signal.SIGTERM, before[1])
    return presses.num_places, handler, ended_by


def test_raising_sigchld_handler_neither_loses_the_window_nor_blocks_exit(caplog, monkeypatch):
    places = [*range(1, 60), *range(60, 10_000, 7)]  # the first ones are in the handler itself
    for place in places:
        num_places, handler, ended_by = terminate_at(place, caplog, monkeypatch)
        if num_places < place:
            break
        assert set(ended_by) == {signal.SIGTERM}, place
        assert ([cycle.number for cycle in handler.cycles], len(handler.spans("step"))) == ([0], 1), place
        assert "failed" not in caplog.text, place
        assert this_process.run is None
    assert num_places > 400
