"""The same program with torch's profiler and with ours: it finds the same names, and sees the same with any options.

What is meant to differ is in docs/compat/torch_profiler.md.
"""

import contextlib
import inspect
import warnings

import pytest
import torch
import torch.profiler as stock
import torch.profiler.profiler
from hypothesis import given, settings
from hypothesis import strategies as st

import kinetoscope.torch as ours
from support.torch_versions import as_in_2_13, counts_each_free

CPU = ours.ProfilerActivity.CPU
pytestmark = as_in_2_13

SWITCHES = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules", "acc_events")
SET_LATER = (*SWITCHES, "post_processing_timeout_s", "custom_trace_id_callback")
"""Options that a program may also set as attributes."""

OF_THE_PROGRAM = ("experimental_config", "schedule", "on_trace_ready", "execution_trace_observer")
OF_TORCH = ("profiler", "step_rec_fn", "action_map")
NOT_OURS = {
    *("_monitor_started_here", "_monitor_tempdir", "_monitor_trace_window", "_use_cupti_monitor"),
    *("_cupti_monitor_external_id", "_record_pg_config"),
}
"""Names of `cupti_monitor`, which we do not have, and a private function of the observer."""


def options():
    schedules = st.fixed_dictionaries(
        {"wait": st.integers(0, 1), "warmup": st.integers(0, 1), "active": st.integers(1, 2)},
        optional={"skip_first": st.integers(0, 1)},
    )
    optional = {
        **dict.fromkeys(SWITCHES, st.booleans()),
        "activities": st.sampled_from([None, [CPU], {CPU}, [{CPU: ["USER_ANNOTATION"]}], [{CPU: []}]]),
        "experimental_config": st.sampled_from([None, "verbose"]),
        "custom_trace_id_callback": st.sampled_from([None, one]),
        "post_processing_timeout_s": st.sampled_from([None, 600.0]),
        "use_cuda": st.sampled_from([None, False]),
        "schedule": st.none() | schedules,
        "on_trace_ready": st.booleans(),
        "execution_trace_observer": st.booleans(),
    }
    return st.fixed_dictionaries({}, optional=optional)


def one():
    return "one"


class Observer:
    def __init__(self, calls):
        self.calls = calls

    def start(self):
        self.calls.append("start")

    def stop(self):
        self.calls.append("stop")

    def cleanup(self):
        self.calls.append("cleanup")


def arguments(module, options, calls):
    """Return the arguments that a program passes for these options."""
    config, schedule = options.get("experimental_config"), options.get("schedule")
    passed = {
        "experimental_config": config and module._ExperimentalConfig(**{config: True}),
        "schedule": schedule and module.schedule(**schedule, repeat=1),
        "on_trace_ready": (lambda profiler: calls.append("ready")) if options.get("on_trace_ready") else None,
        "execution_trace_observer": Observer(calls) if options.get("execution_trace_observer") else None,
    }
    return {name: passed.get(name, value) for name, value in options.items()}


def work():
    layer = torch.nn.Linear(4, 4)
    layer(torch.ones(2, 4)).sum().backward()


def seen(module, options, set_later):
    """Return all that a program can see of a profiler with these options before, during and after its use."""
    calls = []
    passed = arguments(module, options, calls)
    later = {name: passed.pop(name) for name in set_later & set(passed)}
    profiler = module.profile(**passed)
    for name, value in later.items():
        setattr(profiler, name, value)
    found = [state(profiler)]
    with profiler:
        # To its end: left before, some schedules end the process with SIGSEGV in torch's own profiler.
        for _ in range(sum((options.get("schedule") or {"active": 2}).values())):
            found.append(state(profiler) | {"calls": list(calls)})
            with module.record_function("mine"):
                work()
            profiler.step()
        found.append(state(profiler) | {"calls": list(calls)})
    return [*found, state(profiler) | {"calls": calls}, results(profiler)]


def state(profiler):
    names = [name for name in dir(profiler) if not name.startswith("_") and name not in (*OF_THE_PROGRAM, *OF_TORCH)]
    values = {name: getattr(profiler, name) for name in names}
    return {name: value for name, value in values.items() if not inspect.ismethod(value)}


def results(profiler):
    found = {"trace id": profiler.get_trace_id() == "one"}
    with contextlib.suppress(AssertionError, ValueError):
        found["timeline"] = bool(profiler._memory_profile().timeline)
    with contextlib.suppress(AssertionError):
        found["rows"] = sorted(
            (row.key, row.count, row.flops, row.cpu_memory_usage if counts_each_free else 0, str(row.input_shapes))
            for row in profiler.key_averages(group_by_input_shape=True)
            if row.key.startswith(("aten::", "mine"))
        )
    return found


@given(options(), st.sets(st.sampled_from(SET_LATER)))
@settings(max_examples=30, deadline=None)
def test_a_program_sees_the_same_with_any_combination_of_options(options, set_later):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torchs, mine = (seen(module, options, set_later) for module in (stock, ours))
    for of_torch, own in zip(torchs, mine, strict=True):
        assert {name: own.get(name, "missing") for name in of_torch} == of_torch


def objects(module):
    """Each kind of object that a program gets from the module, by its name, fresh and used."""
    with module.profile(activities=[CPU], record_shapes=True) as profiler, module.record_function("mine") as span:
        work()
        yield "running profile", profiler, dir(profiler)
        yield "open span", span, dir(span)
    for name in ("profile", "_KinetoProfile", "ExecutionTraceObserver"):
        made = getattr(module if hasattr(module, name) else torch.profiler.profiler, name)()
        yield name, made, dir(made)
    for name, made in (
        ("finished profile", profiler),
        ("finished span", span),
        ("events", profiler.events()),
        ("event", profiler.events()[0]),
        ("rows", profiler.key_averages()),
        ("row", profiler.key_averages()[0]),
    ):
        yield name, made, dir(made)


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_each_object_has_the_attributes_that_torchs_has():
    for (name, _, of_torch), (_, mine, names) in zip(list(objects(stock)), list(objects(ours)), strict=True):
        assert set(of_torch) - set(names) <= NOT_OURS, name
        assert all(hasattr(mine, each) for each in set(of_torch) & set(names)), name


@pytest.mark.parametrize("module", [stock, torch.profiler.profiler], ids=["profiler", "profiler.profiler"])
def test_each_name_that_torch_defines_exists_here_too(module):
    defined = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and str(getattr(value, "__module__", "")).startswith("torch.profiler")
    }
    missing = {name for name in defined | set(module.__all__) if not hasattr(ours, name)}
    assert missing <= {"MemoryProfile", "MemoryProfileTimeline"}  # of torch.profiler._memory_profiler


def test_the_handle_of_an_open_span_is_torchs():
    with stock.profile(activities=[CPU]), stock.record_function("theirs") as theirs:
        with ours.record_function("mine") as mine:
            assert type(mine.record) is type(theirs.record)
        assert mine.record is None
