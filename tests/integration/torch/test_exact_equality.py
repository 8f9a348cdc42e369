"""Comparison of kinetoscope.torch with torch.profiler, call by call, as programs and torch's tests use it."""

import itertools
import json
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.profiler as stock
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.profiler import ProfilerAction, ProfilerActivity

import kinetoscope.torch as ours

CPU, DEVICE = [ProfilerActivity.CPU], [ProfilerActivity.CPU, ProfilerActivity.CUDA]
both = pytest.mark.parametrize("api", [stock, ours], ids=["stock", "ours"])


@both
@pytest.mark.skipif(not hasattr(torch.autograd, "_is_kineto_stopped"), reason="this torch does not know it")
def test_a_replaced_check_whether_the_device_stopped_is_called(api: Any):
    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
    profiler = api.profile(activities=activities, schedule=api.schedule(wait=0, warmup=1, active=3))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with patch("torch.autograd._is_kineto_stopped", return_value=False):
            profiler.start()
            profiler.step()
        with patch("torch.autograd._is_kineto_stopped", return_value=True):
            profiler.step()
        assert profiler.current_action is ProfilerAction.DEVICE_STOPPED
        profiler.stop()


knows_stopped = pytest.mark.skipif(not hasattr(torch.autograd, "_is_kineto_stopped"), reason="this torch does not")
PLANS = [
    {"wait": wait, "warmup": warmup, "active": active, "repeat": repeat, "skip_first": skip}
    for wait, warmup, active, repeat, skip in itertools.product((0, 2), (0, 1, 3), (1, 2, 4), (0, 2), (0, 1))
]


def follow(api: Any, plan: dict[str, int], answers: list[bool], activities: Any) -> tuple[list[str], list[int]]:
    """Return the action in each step, and the steps in which the handler is called.

    Args:
        answers: for each step, whether Kineto says that the device has stopped.
    """
    actions, called_in = [], []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        schedule = api.schedule(**plan)
        profiler = api.profile(
            activities=activities, schedule=schedule, on_trace_ready=lambda _: called_in.append(len(actions))
        )
        with patch("torch.autograd._is_kineto_stopped", side_effect=lambda: answers[len(actions) - 1]):
            profiler.start()
            actions.append(profiler.current_action.name)
            for _ in answers:
                profiler.step()
                actions.append(profiler.current_action.name)
            profiler.stop()
    return actions, called_in


@knows_stopped
@settings(deadline=None, max_examples=60)
@given(st.sampled_from(PLANS), st.lists(st.booleans(), min_size=1, max_size=10), st.sampled_from([CPU, DEVICE]))
@example({"wait": 0, "warmup": 0, "active": 3, "repeat": 2}, [True, True, False], DEVICE)
@example({"wait": 0, "warmup": 1, "active": 1, "repeat": 3}, [True, True, True], DEVICE)
@example({"wait": 0, "warmup": 1, "active": 2, "repeat": 2}, [False, False, True, False, False], DEVICE)
@example({"wait": 2, "warmup": 1, "active": 2, "repeat": 2}, [False, False, False, True, *[False] * 4], DEVICE)
def test_a_device_that_stops_in_any_step_leads_through_the_same_actions(
    plan: dict[str, int], answers: list[bool], activities: list[ProfilerActivity]
):
    assert follow(ours, plan, answers, activities) == follow(stock, plan, answers, activities)


@both
@knows_stopped
def test_a_start_after_a_stop_while_the_device_had_stopped_records(api: Any):
    windows: list[Any] = []
    profiler = api.profile(
        activities=DEVICE,
        schedule=api.schedule(wait=0, warmup=1, active=1),
        on_trace_ready=windows.append,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with patch("torch.autograd._is_kineto_stopped", return_value=True):
            profiler.start()
            profiler.step()
            assert profiler.current_action is ProfilerAction.DEVICE_STOPPED
            profiler.stop()
        with patch("torch.autograd._is_kineto_stopped", return_value=False):
            profiler.start()
            assert profiler.current_action is ProfilerAction.RECORD_AND_SAVE
            profiler.stop()
    assert len(windows) == 2


@both
@knows_stopped
def test_a_schedule_that_returns_device_stopped_is_refused_and_changes_nothing(api: Any):
    stopped = ProfilerAction.DEVICE_STOPPED
    with pytest.raises(ValueError, match="DEVICE_STOPPED"):
        api.profile(activities=CPU, schedule=lambda _: stopped)
    profiler = api.profile(activities=CPU, schedule=lambda step: stopped if step else ProfilerAction.WARMUP)
    profiler.start()
    with pytest.raises(ValueError, match="DEVICE_STOPPED"):
        profiler.step()
    assert (profiler.step_num, profiler.current_action, profiler.step_rec_fn) == (0, ProfilerAction.WARMUP, None)
    profiler.stop()


@both
@pytest.mark.parametrize("before", ["NONE", "RECORD_AND_SAVE"])
def test_an_unreachable_transition_raises(api: Any, before: str):
    profiler = api.profile(activities=CPU)
    stopped = ProfilerAction.DEVICE_STOPPED
    with pytest.raises(RuntimeError, match=f"{before} -> DEVICE_STOPPED should be unreachable"):
        profiler._transit_action(ProfilerAction[before], stopped)
    with pytest.raises(RuntimeError, match="should be unreachable"):
        for call in profiler.action_map[ProfilerAction[before], stopped]:
            call()


@both
def test_the_handler_calls_a_subclass_s_export(api: Any, tmp_path: Path):
    exported = []

    class Own(api.profile):
        def export_chrome_trace(self, path: str, use_python_export: bool = False) -> None:
            exported.append(path)
            super().export_chrome_trace(path, use_python_export)

    with Own(activities=CPU, on_trace_ready=api.tensorboard_trace_handler(str(tmp_path))):
        torch.ones(1)
    assert [str(path) for path in tmp_path.iterdir()] == [str(path) for path in exported]


@both
@pytest.mark.parametrize("name", [b"x", type("Name", (str,), {})("x")], ids=["bytes", "subclass"])
def test_a_name_of_another_type_is_read_as_text(api: Any, name: Any):
    with api.profile(activities=CPU) as profiler, api.record_function(name):
        torch.ones(1)
    assert "x" in {event.name for event in profiler.events()}


@both
def test_a_name_that_is_no_text_is_refused(api: Any):
    with api.profile(activities=CPU), pytest.raises(RuntimeError, match="Expected a value of type 'str'"):
        with api.record_function(5):
            pass


@both
@pytest.mark.parametrize("in_background", [False, True])
def test_kineto_can_save_what_was_exported_in_python(api: Any, tmp_path: Path, in_background: bool):
    pytest.importorskip("torch.profiler._chrome_trace_export")
    handler = api.tensorboard_trace_handler(str(tmp_path / "traces"), use_python_export=True)
    with api.profile(activities=CPU, on_trace_ready=handler if in_background else None) as profiler:
        torch.ones(1)
    if not in_background:
        profiler.export_chrome_trace(str(tmp_path / "first.json"), use_python_export=True)
    profiler.profiler.kineto_results.save(str(tmp_path / "saved.json"))
    paths = [*tmp_path.rglob("*.json")]
    assert len(paths) == 2
    for path in paths:
        assert "aten::ones" in {event.get("name") for event in json.loads(path.read_bytes())["traceEvents"]}


@both
def test_the_id_of_a_window_is_known_while_it_warms_up_and_made_once(api: Any):
    ids = []

    def new_id() -> str:
        ids.append(f"ID{len(ids) + 1}")
        return ids[-1]

    seen = []
    plan = api.schedule(wait=0, warmup=1, active=1, repeat=2)
    with api.profile(activities=CPU, schedule=plan, custom_trace_id_callback=new_id) as profiler:
        for _ in range(4):
            seen.append(profiler.get_trace_id())
            profiler.step()
    assert seen == ["ID1", "ID1", "ID2", "ID2"]
    assert ids == ["ID1", "ID2"]


def run(profiler: Any, num_steps: int) -> None:
    profiler.start()
    for _ in range(num_steps):
        torch.ones(1)
        profiler.step()
    profiler.stop()


@pytest.mark.parametrize(("repeat", "num_steps", "warns"), [(1, 4, True), (0, 4, False), (2, 3, False), (2, 6, True)])
def test_a_start_after_the_last_cycle_warns_that_nothing_is_recorded(repeat: int, num_steps: int, warns: bool):
    profiler = ours.profile(activities=CPU, schedule=ours.schedule(wait=0, warmup=1, active=2, repeat=repeat))
    run(profiler, num_steps)
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        profiler.start()
    assert any("Nothing will be recorded" in str(warning.message) for warning in given) is warns
    profiler.stop()


@pytest.mark.parametrize("name", ["", "."])
def test_a_folder_is_no_file_to_export_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str):
    """Stock writes nothing, or a hidden file. The difference is in docs/compat/torch_profiler.md."""
    monkeypatch.chdir(tmp_path)
    with ours.profile(activities=CPU) as profiler:
        torch.ones(1)
    with pytest.raises(OSError, match="folder"):
        profiler.export_chrome_trace(name)
    assert not [*tmp_path.iterdir()]
    profiler.export_chrome_trace("trace.json")
    assert json.loads(Path("trace.json").read_bytes())["traceEvents"]
