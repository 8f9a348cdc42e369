"""Fixtures for tests of the recorder: each twin, or only the one in C."""

import pytest

from recorders import make_recorder
from twins import TWINS


@pytest.fixture(params=TWINS)
def twin(request):
    return make_recorder(request.param)


@pytest.fixture
def native():
    return make_recorder("native")
