"""Bad input raises one clear error of ours, of the type that torch raises, and profiling still works afterwards."""

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kinetoscope.errors import KinetoscopeError
from kinetoscope.torch import ProfilerActivity, profile, schedule, tensorboard_trace_handler

CPU = ProfilerActivity.CPU


def recorded(**options: Any) -> profile:
    with profile(**options) as profiler:
        torch.ones(3) + 1
    return profiler


def stepped_after_the_stop() -> None:
    profiler = recorded()
    profiler.step()


def inside_another() -> None:
    with profile(), profile():
        pass


def with_metadata(method: str, *arguments: Any) -> Callable[[], None]:
    def add() -> None:
        with profile() as profiler:
            getattr(profiler, method)(*arguments)

    return add


def with_the_answer(answer: Any) -> Callable[[], None]:
    def step() -> None:
        with profile(schedule=lambda step: answer if step else torch.profiler.ProfilerAction.RECORD) as profiler:
            profiler.step()

    return step


# The call, the type that torch raises (if it does) or one that fits, and what the error must name.
BAD = {
    "an activity that is none": (lambda: profile(activities=["cpu"]), TypeError, "'cpu'"),
    "an activity twice": (lambda: profile(activities=[CPU, CPU]), ValueError, "more than once"),
    "no activity": (lambda: profile(activities=[]), AssertionError, "activities"),
    "a schedule that answers nonsense": (with_the_answer("record"), ValueError, "'record'"),
    "a schedule that answers None": (with_the_answer(None), ValueError, "None"),
    "a negative wait": (lambda: schedule(wait=-1, warmup=1, active=1), AssertionError, "wait"),
    "a warmup of a half": (lambda: schedule(wait=1, warmup=0.5, active=1), AssertionError, "warmup"),
    "nothing active": (lambda: schedule(wait=1, warmup=1, active=0), AssertionError, "active"),
    "a negative repeat": (lambda: schedule(wait=1, warmup=1, active=1, repeat=-2), AssertionError, "repeat"),
    "a negative step": (lambda: schedule(wait=1, warmup=1, active=1)(-1), AssertionError, "-1"),
    "a negative bound on the time": (lambda: profile(post_processing_timeout_s=-1.0), ValueError, "non-negative"),
    "metadata that is not JSON": (with_metadata("add_metadata_json", "key", "{"), ValueError, "'key'"),
    "preset metadata that is not JSON": (with_metadata("preset_metadata_json", "key", "NaN"), ValueError, "'key'"),
    "metadata that JSON cannot hold": (with_metadata("add_metadata", "key", object()), ValueError, "'key'"),
    "a key that is no string": (with_metadata("add_metadata", 3, "value"), ValueError, "3"),
    "a step after the stop": (stepped_after_the_stop, RuntimeError, "stopped"),
    "a second profiler": (inside_another, RuntimeError, "Another torch profiler"),
    "an export of nothing": (lambda: profile().export_chrome_trace("never.json"), AssertionError, "on_trace_ready"),
    "a table of nothing": (lambda: profile().key_averages(), AssertionError, "on_trace_ready"),
    "events of nothing": (lambda: profile().events(), AssertionError, "on_trace_ready"),
    "stacks that were not recorded": (lambda: recorded().export_stacks("never"), AssertionError, "with_stack"),
    "a memory timeline without its options": (
        lambda: recorded(record_shapes=True).export_memory_timeline("never.json"),
        ValueError,
        "profile_memory=True, with_stack=True",
    ),
}
# Paths under a file, where no folder can be.
UNWRITABLE = {
    "a trace": (lambda path: recorded().export_chrome_trace(path / "t.json"), PermissionError),
    "a packed trace": (lambda path: recorded().export_chrome_trace(path / "t.json.gz"), PermissionError),
    "stacks": (lambda path: recorded(with_stack=True).export_stacks(path / "stacks"), PermissionError),
    "a folder of logs": (lambda path: recorded(on_trace_ready=tensorboard_trace_handler(path / "logs")), RuntimeError),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_one_clear_kinetoscope_error_of_a_fitting_type(what, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    call, kind, named = BAD[what]
    with pytest.raises(kind, match=re.escape(named)) as raised:
        call()
    assert isinstance(raised.value, KinetoscopeError)
    assert str(raised.value).endswith(".")
    assert not list(tmp_path.iterdir())
    assert {event.name for event in recorded().events()} >= {"aten::add"}


@pytest.mark.parametrize("what", UNWRITABLE)
def test_a_path_that_cannot_be_written_is_named_and_nothing_is_left(what, tmp_path):
    (tmp_path / "file").write_text("not a folder")
    call, kind = UNWRITABLE[what]
    with pytest.raises(kind, match="file") as raised:
        call(tmp_path / "file")
    assert isinstance(raised.value, KinetoscopeError)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_error_in_the_midst_of_training_leaves_the_profiler_as_it_was():
    profiler = profile(schedule=schedule(wait=0, warmup=1, active=2))
    with profiler:
        for _ in range(3):
            torch.ones(3) + 1
            with contextlib.suppress(KinetoscopeError):
                profiler.add_metadata_json("key", "{")
            profiler.step()
    assert {event.trace_name for event in profiler.events()} >= {"ProfilerStep#1", "ProfilerStep#2"}


def test_a_device_that_is_full_is_an_error_and_leaves_no_half_of_a_trace(tmp_path):
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no /dev/full here")
    profiler = recorded()
    with pytest.raises(OSError):
        profiler.export_chrome_trace(full / "trace.json")
    profiler.export_chrome_trace(tmp_path / "trace.json")
    assert (tmp_path / "trace.json").stat().st_size > 0
