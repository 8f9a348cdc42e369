import pytest

from kinetoscope import Callback, Event, State


@pytest.mark.parametrize("event", Event)
def test_every_event_has_a_method_that_does_nothing(event):
    assert getattr(Callback(), event.value)(State(), None) is None


def test_run_event_calls_the_method_of_the_event():
    class Mine(Callback):
        def batch_end(self, state, logger):
            self.seen = (state, logger)

    mine, state = Mine(), State()
    mine.run_event(Event.BATCH_END, state, "logger")
    assert mine.seen == (state, "logger")


def test_events_know_whether_they_open_or_close_a_period():
    assert Event.BATCH_START.is_before_event
    assert Event.BEFORE_FORWARD.is_before_event
    assert Event.AFTER_LOSS.is_after_event
    assert Event.EPOCH_END.is_after_event
    assert not Event.INIT.is_before_event
    assert not Event.BATCH_CHECKPOINT.is_after_event
