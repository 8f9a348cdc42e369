"""A scan of objects ends after 10 ms of CPU time, which a slow machine needs for some tests under coverage."""

import pytest

from kinetoscope.sources import retained_objects


@pytest.fixture(autouse=True)
def scans_without_time_limit(monkeypatch):
    monkeypatch.setattr(retained_objects, "MAX_SCAN_NS", 60_000_000_000)
