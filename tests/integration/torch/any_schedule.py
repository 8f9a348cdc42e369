"""Runs many schedules, legal and illegal, in one process. A script; its argument is their number.

A crash ends the process: the last line on stderr is then the schedule that did it.
"""

import contextlib
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kinetoscope.errors import KinetoscopeError
from kinetoscope.torch import ProfilerAction, profile, schedule

ACTIONS = [ProfilerAction.NONE, ProfilerAction.WARMUP, ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE]
NONSENSE = [None, "record", 2]

few = st.integers(0, 3)
legal = st.builds(
    lambda **numbers: ("schedule", numbers),
    wait=few,
    warmup=few,
    active=st.integers(1, 3),
    repeat=few,
    skip_first=few,
    skip_first_wait=few,
)
listed = st.lists(st.sampled_from([*ACTIONS, *ACTIONS, *NONSENSE]), min_size=1, max_size=10).map(
    lambda actions: ("listed", actions)
)
calls = st.lists(st.sampled_from(["step", "step", "step", "step", "finish", "follow", "stop", "start"]), max_size=14)


def scheduled(kind: str, what: Any) -> Callable[[int], Any]:
    return schedule(**what) if kind == "schedule" else lambda step: what[min(step, len(what) - 1)]


def go_through(plan: tuple[str, Any], steps: list[str], *, is_raising: bool, acc_events: bool) -> None:
    def handler(profiler: profile) -> None:
        if is_raising:
            raise KeyError("handler")

    # Refusals raise an error of ours; a handler's own error is raised as it is.
    with contextlib.suppress(KinetoscopeError, KeyError):
        profiler = profile(schedule=scheduled(*plan), on_trace_ready=handler, acc_events=acc_events)
        with profiler:
            for step in steps:
                torch.ones(1)
                with contextlib.suppress(KinetoscopeError, KeyError):
                    method = {"finish": "finish_window", "follow": "follow_schedule"}.get(step, step)
                    getattr(profiler, method)()


def check_profilable() -> None:
    with profile() as profiler:
        torch.ones(1)
    names = {event.name() for event in profiler.profiler.kineto_results.events()}
    assert "aten::ones" in names


def main(num_schedules: int) -> None:
    done = 0

    @settings(max_examples=num_schedules, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(plan=legal | listed, steps=calls, is_raising=st.booleans(), acc_events=st.booleans())
    def go(plan: tuple[str, Any], steps: list[str], is_raising: bool, acc_events: bool) -> None:
        nonlocal done
        print(plan, steps, is_raising, acc_events, file=sys.stderr)
        go_through(plan, steps, is_raising=is_raising, acc_events=acc_events)
        check_profilable()
        done += 1

    with warnings.catch_warnings(action="ignore"):
        go()
    print(done)


if __name__ == "__main__":
    main(int(sys.argv[1]))
