"""Fixtures for tests of the recorder."""

import pytest

from support.recorders import FakeClockRecorder


@pytest.fixture
def native():
    """A recorder with a clock that ticks, and its spans."""
    return FakeClockRecorder()
