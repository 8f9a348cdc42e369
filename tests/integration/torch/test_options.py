"""Options that are set as attributes, objects that are copied and looked at, as with torch's own profiler."""

import contextlib
import copy
import itertools
import pickle
import warnings

import pytest
import torch
import torch.profiler as stock

import kinetoscope.torch as ours
from support.torch_versions import counts_each_free, since_2_13

CPU = ours.ProfilerActivity.CPU
SWITCHES = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")


def work():
    layer = torch.nn.Linear(4, 4)
    layer(torch.ones(2, 4)).sum().backward()


def seen(module, options, *, as_attributes):
    """Return all that a program can see of a recording with these options: rows, header, and errors of its files."""
    profiler = module.profile(activities=[CPU], **({} if as_attributes else options))
    if as_attributes:
        for name, value in options.items():
            setattr(profiler, name, value)
    with profiler:
        work()
    rows = profiler.key_averages(group_by_input_shape=True)
    operators = sorted(
        (row.key, row.count, row.flops, row.cpu_memory_usage if counts_each_free else 0, str(row.input_shapes))
        for row in rows
        if row.key.startswith("aten::")
    )
    return operators, has_memory_timeline(profiler), {name: getattr(profiler, name) for name in SWITCHES}


def has_memory_timeline(profiler):
    try:
        return bool(profiler._memory_profile().timeline)
    except ValueError:
        return False


@pytest.mark.parametrize("as_attributes", [False, True], ids=["arguments", "attributes"])
@pytest.mark.parametrize(
    "on",
    list(itertools.product([False, True], repeat=len(SWITCHES))),
    ids=lambda on: "".join("01"[each] for each in on),
)
def test_each_combination_of_options_records_what_it_records_with_torchs_own(on, as_attributes):
    options = dict(zip(SWITCHES, on, strict=True))
    assert seen(ours, options, as_attributes=as_attributes) == seen(stock, options, as_attributes=as_attributes)


def test_an_option_that_is_set_after_the_recording_does_not_make_an_empty_timeline(tmp_path):
    with ours.profile(activities=[CPU]) as profiler:
        work()
    profiler.record_shapes = profiler.profile_memory = profiler.with_stack = True
    with pytest.raises(ValueError, match="record_shapes=True"):
        profiler.export_memory_timeline(tmp_path / "memory.json")
    with profiler:
        work()
    profiler.export_memory_timeline(tmp_path / "memory.json")


@since_2_13
def test_a_filter_and_a_timeout_that_are_set_as_attributes_count():
    profiler = ours.profile(activities=[CPU])
    profiler.activity_filters = {CPU: {"USER_ANNOTATION"}}
    with profiler, ours.record_function("mine"):
        work()
    assert [event.name for event in profiler.events()] == filtered_by_torch()
    profiler.post_processing_timeout_s = -1.0
    with pytest.raises(ValueError, match="post_processing_timeout_s"):
        profiler.start()


def filtered_by_torch():
    with stock.profile(activities=[{CPU: ["USER_ANNOTATION"]}]) as profiler, stock.record_function("mine"):
        work()
    return [event.name for event in profiler.events()]


def test_the_trace_id_is_the_one_of_the_function_that_was_set_last():
    profiler = ours.profile(activities=[CPU])
    profiler.custom_trace_id_callback = lambda: "first"
    with profiler:
        assert profiler.get_trace_id() == "first"
    profiler.set_custom_trace_id_callback(lambda: "second")
    with profiler:
        assert profiler.get_trace_id() == "second"


def test_none_as_the_profiler_drops_what_was_recorded_and_nothing_else_can_be_set():
    profiler = ours.profile(activities=[CPU])
    with profiler:
        with pytest.raises(RuntimeError, match="Stop it first"):
            profiler.profiler = None
        work()
    profiler.profiler = None
    with pytest.raises(AssertionError):
        profiler.events()
    with pytest.raises(ValueError, match="only be set to None"):
        profiler.profiler = profiler
    with profiler:
        work()
    assert profiler.events()


def test_a_profiler_that_was_not_started_can_be_pickled_and_copied():
    first = ours.profile(activities=[CPU], record_shapes=True, schedule=ours.schedule(wait=0, warmup=0, active=1))
    for second in (pickle.loads(pickle.dumps(ours.profile(activities=[CPU], record_shapes=True))), copy.copy(first)):
        second.schedule = ours.schedule(wait=0, warmup=0, active=1)
        assert (second.activities, second.record_shapes) == ({CPU}, True)
        with second:
            work()
        assert second.events()
    with pytest.raises(RuntimeError, match="cannot be pickled"):
        pickle.dumps(second)


def test_an_event_lists_the_attributes_that_torchs_has():
    with ours.profile(activities=[CPU]) as mine:
        work()
    with stock.profile(activities=[CPU]) as torchs:
        work()
    assert set(dir(torchs.events()[0])) <= set(dir(mine.events()[0]))


def test_record_function_is_a_context_decorator_as_torchs_is():
    assert isinstance(ours.record_function("name"), contextlib.ContextDecorator)


def test_kernels_may_be_asked_for_before_the_file_is_named(tmp_path):
    observer = ours.ExecutionTraceObserver()
    observer.set_extra_resource_collection(True)
    assert observer.get_resources_dir() is None
    observer.register_callback(tmp_path / "trace.json")
    observer.unregister_callback()
    assert (tmp_path / "trace_resources").is_dir()
    assert set(tmp_path.iterdir()) == {tmp_path / "trace.json", tmp_path / "trace_resources"}


@since_2_13
def test_a_name_instead_of_an_activity_is_the_error_that_torch_raises():
    with pytest.raises((AssertionError, TypeError)) as raised:  # the latter since torch 2.15
        stock.profile(activities=["CPU"])
    with pytest.raises(raised.type):
        ours.profile(activities=["CPU"])


@since_2_13
def test_unsupported_backend_is_reported():
    with pytest.warns(UserWarning, match="cupti_monitor"):
        ours.profile(
            activities=[CPU], experimental_config=ours._ExperimentalConfig(custom_profiler_config="cupti_monitor")
        )
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours.profile(activities=[CPU], experimental_config=ours._ExperimentalConfig(verbose=True))


@pytest.mark.parametrize("name", ["itt", "_ExperimentalConfig"])
def test_names_that_torch_profiler_has_are_torchs_own(name):
    assert getattr(ours, name) is getattr(stock, name)
