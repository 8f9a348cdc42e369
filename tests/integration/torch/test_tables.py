"""Tables from columns: torch's rows and numbers, field by field, on the same results of Kineto. torch's tables are made
without our own Python frames, too.
"""

import copy
import json
import pickle
import py_compile
import sys
import threading

import pytest
import torch
from torch.autograd.profiler_util import EventList, FunctionEvent, FunctionEventAvg

from kinetoscope.torch import profile, record_function, schedule
from kinetoscope.torch.python_frames import ProfilerFrames, drop_from_stack
from support.torch_versions import experimental_config, needs_frames_among_events, since_2_13

FIELDS = [
    *("key", "count", "node_id", "is_async", "is_remote", "use_device", "scope", "device_type", "is_legacy", "flops"),
    *("cpu_time_total", "self_cpu_time_total", "device_time_total", "self_device_time_total", "is_user_annotation"),
    *("cpu_memory_usage", "self_cpu_memory_usage", "device_memory_usage", "self_device_memory_usage"),
    *("input_shapes", "stack"),
    *(name for name in ("overload_name",) if hasattr(FunctionEventAvg(), name)),
]
OPTIONS = [
    {},
    {"record_shapes": True, "with_flops": True},
    {"profile_memory": True, "record_shapes": True},
    {"with_stack": True, "verbose": True},
    {"with_stack": True, "record_shapes": True, "profile_memory": True, "with_flops": True},
    {"capture_overload_names": True},
]
GROUPINGS = [
    {},
    {"group_by_input_shape": True},
    {"group_by_stack_n": 3},
    {"group_by_input_shape": True, "group_by_stack_n": 5},
]
if "overload_name" in FIELDS:
    GROUPINGS += [{**grouping, "group_by_overload_name": True} for grouping in GROUPINGS[::3]]


def train(num_steps: int = 2) -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(144, 2))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(num_steps):
        with record_function("batch"), record_function("batch"):
            optimizer.zero_grad()
            model(torch.ones(2, 3, 8, 8)).sum().backward()
            optimizer.step()


def record(options: dict) -> profile:
    config = {name: options[name] for name in ("verbose", "capture_overload_names") if name in options}
    rest = {name: value for name, value in options.items() if name not in config}
    with profile(**rest, experimental_config=experimental_config(**config)) as profiler:
        train()
    profiler.profiler.kineto_results = WithoutOurFrames(profiler.profiler.kineto_results)
    return profiler


class WithoutOurFrames:
    """Kineto's results as torch reads them, without our frames."""

    def __init__(self, results) -> None:
        self._results = results
        self._own = ProfilerFrames()

    def __getattr__(self, name: str):
        return getattr(self._results, name)

    def events(self) -> list:
        return [
            EventAmongOthers(event, self._own) for event in self._results.events() if not self._is_of_kinetoscope(event)
        ]

    def _is_of_kinetoscope(self, event) -> bool:
        if not getattr(event, "is_python_function", bool)():
            return False
        return self._own.add_if_profiler_frame(event.name(), event.python_id(), event.python_parent_id())


class EventAmongOthers:
    """An event of Kineto, without our frames around it."""

    def __init__(self, event, own: ProfilerFrames) -> None:
        self._event = event
        self._own = own

    def __getattr__(self, name: str):
        return getattr(self._event, name)

    def stack(self) -> list[str]:
        return drop_from_stack(self._event.stack())

    def python_parent_id(self) -> int:
        parent = self._event.python_parent_id()
        return self._own.above.get(parent, parent)


def rows_of(averages) -> list[dict]:
    return [{field: getattr(row, field) for field in FIELDS} for row in averages]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_key_averages_has_the_rows_and_numbers_of_stock(options):
    profiler = record(options)
    for grouping in GROUPINGS:
        replacement, stock = profiler.key_averages(**grouping), profiler.profiler.key_averages(**grouping)
        assert rows_of(replacement) == rows_of(stock), grouping
        assert replacement.table(sort_by="self_cpu_time_total") == stock.table(sort_by="self_cpu_time_total")
        assert isinstance(replacement, EventList)
        assert all(isinstance(row, FunctionEventAvg) for row in replacement)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_events_have_the_attributes_of_torchs_events(options):
    profiler = record(options)
    replacement, stock = profiler.events(), profiler.profiler.function_events
    assert isinstance(replacement, EventList)
    place_of = {id(event): index for events in (replacement, stock) for index, event in enumerate(events)}
    for mine, theirs in zip(replacement, stock, strict=True):
        assert isinstance(mine, FunctionEvent)
        for name, value in vars(theirs).items():
            assert shown(getattr(mine, name), place_of) == shown(value, place_of), name
        assert mine.self_cpu_time_total == theirs.self_cpu_time_total
    assert table_of(replacement) == table_of(stock)
    assert rows_of(replacement.key_averages()) == rows_of(stock.key_averages())


def table_of(events: EventList) -> str:
    try:
        return events.table(sort_by="cpu_time_total")
    except TypeError as error:  # torch up to 2.9 or so cannot make tables with memory and FLOPS
        return str(error)


def shown(value, place_of: dict[int, int]):
    """Return a value that can be compared; an event becomes its place in its list."""
    if isinstance(value, FunctionEvent):
        return place_of[id(value)]
    if isinstance(value, list):
        return [shown(item, place_of) for item in value]
    return (value.start, value.end) if type(value).__name__ == "Interval" else value


def test_events_are_counted_when_they_are_made_as_torch_counts_them():
    profiler = record({})
    stats = profiler._stats()
    assert (stats.number_of_events, stats.function_events_build_tree_call_duration_us) == (0, 0)
    assert stats.number_of_events == 0 < len(profiler.events())
    assert stats.number_of_events == len(profiler.events())
    assert stats.function_events_build_tree_call_duration_us > 0


def test_an_event_can_be_copied_and_pickled():
    event = next(event for event in record({"record_shapes": True}).events() if event.cpu_parent)
    for twin in (copy.deepcopy(event), pickle.loads(pickle.dumps(event))):
        assert (twin.name, twin.time_range.start, twin.input_shapes) == (
            event.name,
            event.time_range.start,
            event.input_shapes,
        )
        assert twin.cpu_parent.name == event.cpu_parent.name


def test_events_are_made_from_columns_with_every_torch_we_know():
    assert vars(record({}).events()[0]).keys() < vars(FunctionEvent(0, "", 0, 0, 0)).keys()


def test_key_averages_can_be_pickled_with_the_events_around_its_rows():
    averages = record({"record_shapes": True}).key_averages(group_by_input_shape=True)
    twin = pickle.loads(pickle.dumps(averages))
    assert rows_of(twin) == rows_of(averages)
    assert twin.table(top_level_events_only=True) == averages.table(top_level_events_only=True)
    assert [row.cpu_parent and row.cpu_parent.name for row in twin] == [
        row.cpu_parent and row.cpu_parent.name for row in averages
    ]


@needs_frames_among_events
def test_frames_with_names_lost_by_torch_appear_in_tables_and_traces(tmp_path, monkeypatch):
    """Names of code that was freed before the stop, such as a module's, may be any bytes."""
    monkeypatch.syspath_prepend(tmp_path)
    for number in range(20):
        (tmp_path / f"gone_{number}.py").write_text("")
        py_compile.compile(str(tmp_path / f"gone_{number}.py"))
    with profile(with_stack=True) as profiler:
        for number in range(20):
            __import__(f"gone_{number}")
            del sys.modules[f"gone_{number}"]
            _ = [bytes([0xB6]) * size for size in range(200) for _ in range(20)]  # where their names were
    assert profiler.key_averages(include_python_functions=True).table()
    assert profiler.events()[0].trace_name
    profiler.export_stacks(tmp_path / "stacks")
    profiler.export_chrome_trace(tmp_path / "trace.json")
    assert json.loads((tmp_path / "trace.json").read_text())["traceEvents"]


def test_an_attribute_that_no_event_has_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nonsense"):
        _ = record({}).events()[0].nonsense


def test_a_row_has_the_events_around_and_inside_its_first_one():
    profiler = record({"record_shapes": True})
    events, stocks = profiler.events(), profiler.profiler.function_events
    place_of = {id(event): index for listed in (events, stocks) for index, event in enumerate(listed)}
    for replacement, stock in zip(profiler.key_averages(), profiler.profiler.key_averages(), strict=True):
        assert shown(replacement.cpu_parent, place_of) == shown(stock.cpu_parent, place_of)
        assert shown(replacement.cpu_children, place_of) == shown(stock.cpu_children, place_of)
    top = profiler.key_averages().table(top_level_events_only=True)
    assert top == profiler.profiler.key_averages().table(top_level_events_only=True)


def test_a_thread_from_before_the_profile_is_recorded_and_added_up_as_stock_does():
    begin, done = threading.Event(), threading.Event()

    def work_beside() -> None:
        begin.wait()
        torch.ones(3).mul(2)
        done.set()

    thread = threading.Thread(target=work_beside)
    thread.start()
    config = experimental_config(profile_all_threads=True)
    with profile(experimental_config=config, profile_memory=True) as profiler:
        begin.set()
        done.wait()
        torch.ones(2) + 1
    thread.join()
    assert {"aten::mul", "aten::add"} <= {row.key for row in profiler.key_averages()}
    assert rows_of(profiler.key_averages()) == rows_of(profiler.profiler.key_averages())


@needs_frames_among_events
def test_python_functions_can_be_left_out_of_the_rows():
    profiler = record({"with_stack": True})
    keys = {row.key for row in profiler.key_averages(include_python_functions=True)}
    without = {row.key for row in profiler.key_averages(include_python_functions=False)}
    assert "aten::convolution" in without
    assert any(".py(" in key for key in keys)
    assert not any(".py(" in key for key in without)


@pytest.mark.parametrize("metric", ["self_cpu_time_total", "self_cuda_time_total"])
def test_export_stacks_writes_the_same_as_torchs(tmp_path, metric):
    profiler = record({"with_stack": True, "verbose": True})
    profiler.export_stacks(tmp_path / "ours", metric)
    profiler.profiler.export_stacks(str(tmp_path / "stock"), metric)
    assert (tmp_path / "ours").read_text() == (tmp_path / "stock").read_text()


def test_export_stacks_writes_the_stacks_also_where_stock_writes_nothing(tmp_path):
    profiler = record({"with_stack": True})
    profiler.export_stacks(tmp_path / "ours")
    profiler.profiler.export_stacks(str(tmp_path / "stock"))
    assert (tmp_path / "stock").read_text() == ""
    lines = (tmp_path / "ours").read_text().splitlines()
    assert any("test_tables.py" in line and "conv" in line for line in lines)
    assert all(line.rpartition(" ")[2].isdigit() for line in lines)


def test_stacks_that_were_not_recorded_are_an_assertion_error_that_says_so(tmp_path):
    with pytest.raises(AssertionError, match="with_stack"):
        record({}).export_stacks(tmp_path / "stacks")


def test_a_metric_that_torch_does_not_know_is_refused(tmp_path):
    with pytest.raises(ValueError, match="self_cpu_time_total"):
        record({"with_stack": True}).export_stacks(tmp_path / "stacks", "nonsense")
    assert not (tmp_path / "stacks").exists()


def test_acc_events_adds_up_all_cycles():
    counts = {}
    for acc_events in (False, True):
        with profile(schedule=schedule(wait=0, warmup=1, active=2, repeat=3), acc_events=acc_events) as profiler:
            for _ in range(12):
                torch.ones(3) + 1
                profiler.step()
        [counts[acc_events]] = [row.count for row in profiler.key_averages() if row.key == "aten::add"]
        assert [event.name for event in profiler.events()].count("aten::add") == counts[acc_events]
    assert counts == {False: 2, True: 6}


def test_tables_of_a_recording_without_events_say_why_there_are_none(tmp_path):
    with profile(experimental_config=experimental_config(trace_only=True)) as profiler:
        train(1)
    for call in (profiler.events, profiler.key_averages):
        with pytest.raises(RuntimeError, match="trace_only"):
            call()


@since_2_13
def test_a_time_limit_gives_the_same_result_as_torchs_profiler():
    with profile(post_processing_timeout_s=0.0) as profiler:
        train(1)
    assert rows_of(profiler.key_averages()) == rows_of(profiler.profiler.key_averages())


def test_the_averages_as_a_frame_have_a_row_each():
    averages = record({}).key_averages()
    assert averages.to_polars().height == len(averages)
