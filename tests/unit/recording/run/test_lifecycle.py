"""The lifecycle of a run: each phase follows only those that the table of transitions allows."""

import pytest

from kinetoscope import Profiler, ProfilerAction
from kinetoscope.errors import ProfilerStateError
from kinetoscope.recording.run.lifecycle import TRANSITIONS, Phase
from kinetoscope.testing import MemoryTraceHandler


def make_run():
    profiler = Profiler(lambda state: ProfilerAction.ACTIVE, MemoryTraceHandler(), quiet=True, spool_folder=False)
    return profiler, profiler.lifecycle


def test_every_phase_can_end_closed():
    reached = {Phase.CLOSED}
    for _ in Phase:
        reached |= {phase for phase, following in TRANSITIONS.items() if following & reached}
    assert reached == set(Phase)


def test_a_run_is_new_then_running_then_closed():
    profiler, run = make_run()
    assert (run.is_new, run.is_running, run.is_closed) == (True, False, False)
    with profiler:
        assert (run.is_new, run.is_running, run.is_closed) == (False, True, False)
    assert (run.is_new, run.is_running, run.is_closed) == (False, False, True)


def test_a_run_that_is_over_cannot_start_again():
    profiler, run = make_run()
    with profiler:
        pass
    with pytest.raises(ProfilerStateError, match="A run that is CLOSED cannot be RUNNING"):
        run.start()
    assert run.is_closed
    profiler.close()


def test_closing_a_run_that_never_started_ends_it():
    profiler, run = make_run()
    profiler.close()
    assert run.is_closed
    with pytest.raises(ProfilerStateError, match="has been started before"):
        profiler.start()
