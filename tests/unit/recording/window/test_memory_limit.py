"""recording/window/memory_limit.py: a window ends early where memory grows too much while it is open."""

import pytest

import kinetoscope
from kinetoscope import Profiler, ProfilerAction, cyclic_schedule
from kinetoscope.core.paths import available_memory
from kinetoscope.recording.window import memory_limit
from kinetoscope.testing import MemoryTraceHandler

GB = 1_000_000_000


@pytest.fixture
def memory(monkeypatch):
    """The memory of the process, and what is available, as the system says it."""
    readings = {"resident": 1 * GB, "available": 8 * GB}
    monkeypatch.setattr(memory_limit, "read_resident_bytes", lambda: readings["resident"])
    monkeypatch.setattr(memory_limit, "available_bytes", lambda: readings["available"])
    monkeypatch.setattr(memory_limit, "_POLL_INTERVAL_S", 0.0)
    return readings


def train(memory, grown_at, *, num_batches=30, has_limit=True, repeat=1):
    """Record batches 2 to 11, or cycles of ten; memory grows by 3 GB in each batch of ``grown_at``."""
    handler = MemoryTraceHandler()
    schedule = cyclic_schedule(skip_first=1, warmup=1, active=10, repeat=repeat, per="run")
    profiler = Profiler(schedule, handler, quiet=True, strict=True)
    if has_limit:
        profiler.lifecycle.windows.memory_limit.share = memory_limit.MAX_GROWTH_SHARE
    actions = []
    with profiler:
        for batch in profiler.batches(range(num_batches)):
            actions.append(profiler.get_action())
            memory["resident"] += 3 * GB * (batch in grown_at)
            with profiler.marker("train"):
                pass
    windows = [(cycle.begin_timestamp.batch, cycle.timestamp.batch) for cycle in handler.cycles]
    return windows, actions


def test_a_window_ends_with_the_batch_in_which_memory_grew_too_much_and_is_saved(memory, caplog):
    windows, actions = train(memory, {4})
    assert windows == [(1, 5)]
    assert set(actions[5:]) == {ProfilerAction.SKIP}
    (record,) = caplog.records
    assert "closed early" in record.message
    assert "3.0 GB" in record.message
    assert "8.0 GB" in record.message


def test_later_windows_have_a_limit_of_their_own_and_the_line_comes_once(memory, caplog):
    windows, _ = train(memory, {4, 15}, num_batches=40, repeat=0)
    assert windows[:3] == [(1, 5), (12, 16), (23, 34)]
    assert len(caplog.records) == 1


def test_memory_that_grows_before_a_window_is_none_of_its(memory, caplog):
    assert train(memory, {0})[0] == [(1, 12)]
    assert not caplog.records


def test_a_profiler_of_the_users_own_has_no_limit(memory):
    assert train(memory, {4}, has_limit=False)[0] == [(1, 12)]


def test_profile_has_a_limit_which_is_lower_where_operators_are_recorded(tmp_path):
    shares = [
        kinetoscope.profile(tmp_path / name, torch=torch).lifecycle.windows.memory_limit.share
        for name, torch in (("a", False), ("b", True))
    ]
    assert shares == [memory_limit.MAX_GROWTH_SHARE, memory_limit.MAX_GROWTH_SHARE_WITH_OPERATORS]


def test_a_limit_of_a_control_group_counts_less_its_usage(tmp_path, monkeypatch):
    for name, content in {
        "memory.max": "4000000000",
        "memory.current": "3000000000",
        "memory.stat": "anon 2500000000\ninactive_file 500000000",
    }.items():
        (tmp_path / name).write_text(f"{content}\n")
    unlimited = tmp_path / "outer"
    unlimited.mkdir()
    (unlimited / "memory.max").write_text("max\n")
    (unlimited / "memory.current").write_text("1\n")
    monkeypatch.setattr(available_memory, "cgroup_folders", lambda controller: [tmp_path, unlimited, tmp_path / "gone"])
    monkeypatch.setattr(available_memory.sys, "platform", "linux")
    assert memory_limit.available_bytes() == 1_500_000_000
    monkeypatch.undo()
    assert (memory_limit.available_bytes() or 0) > 0
