import pickle
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kinetoscope import Timestamp


def test_a_batch_increases_all_counts_and_an_epoch_resets_its_own():
    second = timedelta(seconds=1)
    timestamp = Timestamp().to_next_batch(samples=8, tokens=100, duration=second).to_next_batch(samples=8)
    assert (timestamp.batch, timestamp.batch_in_epoch, timestamp.sample, timestamp.token) == (2, 2, 16, 100)
    assert (timestamp.total_wct, timestamp.batch_wct) == (second, timedelta())
    later = timestamp.to_next_epoch()
    assert (later.epoch, later.batch, later.batch_in_epoch, later.sample, later.sample_in_epoch) == (1, 2, 0, 16, 0)
    assert (later.total_wct, later.epoch_wct) == (second, timedelta())


def test_a_timestamp_cannot_be_changed():
    with pytest.raises(AttributeError, match="to_next_batch"):
        Timestamp().batch = 3


def test_counts_answer_value_as_composers_do():
    assert Timestamp(batch=7).batch.value == 7
    assert Timestamp(batch=7).batch == 7


@given(st.integers(0, 2**40), st.integers(0, 2**40))
def test_a_timestamp_survives_pickling_and_compares_by_its_counts(epoch, batch):
    timestamp = Timestamp(epoch=epoch, batch=batch)
    again = pickle.loads(pickle.dumps(timestamp))
    assert again == timestamp
    assert hash(again) == hash(timestamp)
    assert again != timestamp.to_next_batch()


def test_the_text_of_a_timestamp_shows_counts_that_are_not_zero():
    assert repr(Timestamp(epoch=1, batch=7)) == "Timestamp(epoch=1, batch=7)"
