"""Execution traces: files that torch's observer writes, during a profiler's window or alone."""

import gzip
import json

import pytest
import torch

from kinetoscope.torch import ExecutionTraceObserver, profile, record_function, schedule


def work() -> None:
    torch.ones(3) + 1


def names_in(content: str | bytes) -> list[str]:
    return [node["name"] for node in json.loads(content)["nodes"]]


def test_an_observer_records_during_the_window_of_its_profiler(tmp_path):
    path = tmp_path / "new" / "trace.et.json"
    observer = ExecutionTraceObserver().register_callback(str(path))
    running = []
    with profile(
        schedule=schedule(wait=1, warmup=1, active=1, repeat=1), execution_trace_observer=observer
    ) as profiler:
        for step in range(4):
            running.append(observer.is_running())
            with record_function(f"step {step}"):
                work()
            profiler.step()
    assert running == [False, False, True, False]
    assert not observer.is_registered
    assert [name for name in names_in(path.read_bytes()) if name.startswith("step")] == ["step 2"]
    assert observer.get_output_file_path() == str(path)


def test_a_name_that_ends_in_gz_is_compressed(tmp_path):
    observer = ExecutionTraceObserver().register_callback(tmp_path / "trace.et.json.gz")
    observer.start()
    work()
    observer.cleanup()
    assert "aten::add" in names_in(gzip.decompress((tmp_path / "trace.et.json.gz").read_bytes()))
    assert [path.name for path in tmp_path.iterdir()] == ["trace.et.json.gz"]


def test_registering_twice_is_harmless_and_keeps_the_first_file(tmp_path):
    observer = ExecutionTraceObserver().register_callback(str(tmp_path / "first.json"))
    assert observer.register_callback(str(tmp_path / "second.json")) is observer
    assert observer.get_output_file_path() == str(tmp_path / "first.json")
    observer.unregister_callback()
    observer.unregister_callback()


def two_observers(folder) -> tuple[ExecutionTraceObserver, ExecutionTraceObserver]:
    first = ExecutionTraceObserver().register_callback(str(folder / "first.json"))
    with pytest.warns(UserWarning, match=r"first\.json"):
        return first, ExecutionTraceObserver().register_callback(str(folder / "second.json"))


def test_a_second_observer_in_the_process_writes_into_the_firsts_file_as_torchs_does(tmp_path):
    first, second = two_observers(tmp_path)
    assert (second.is_registered, second.get_output_file_path()) == (True, str(tmp_path / "second.json"))
    second.start()
    assert (first.is_running(), second.is_running()) == (False, True)
    work()
    second.cleanup()
    assert (first.is_registered, second.is_registered) == (True, False)
    first.start()
    torch.zeros(3)
    first.cleanup()
    assert {"aten::add", "aten::zeros"} <= set(names_in((tmp_path / "first.json").read_bytes()))
    assert not (tmp_path / "second.json").exists()


def test_a_second_observer_outlives_the_first_without_a_crash(tmp_path):
    first, second = two_observers(tmp_path)
    first.start()
    second.start()
    first.stop()
    work()
    first.cleanup()
    assert "aten::add" in names_in((tmp_path / "first.json").read_bytes())
    assert not second.is_running()
    second.start()
    second.stop()
    second.cleanup()
    assert ExecutionTraceObserver().register_callback(str(tmp_path / "third.json")).is_registered


def test_before_a_file_is_named_there_is_no_path():
    assert ExecutionTraceObserver().get_output_file_path() is None


def test_an_observer_that_is_dropped_finishes_its_file(tmp_path):
    observer = ExecutionTraceObserver().register_callback(str(tmp_path / "trace.json"))
    observer.start()
    work()
    del observer
    assert "aten::add" in names_in((tmp_path / "trace.json").read_bytes())


def test_environment_requests_an_observer_and_its_extras(monkeypatch):
    assert ExecutionTraceObserver.build_execution_trace_obs_from_env() is None
    monkeypatch.setenv("ENABLE_PYTORCH_EXECUTION_TRACE", "1")
    monkeypatch.setenv("ENABLE_PYTORCH_EXECUTION_TRACE_EXTRAS", "1")
    with profile() as profiler:
        observer = profiler.execution_trace_observer
        assert observer.is_running()
        work()
    assert not observer.is_registered
    with open(observer.get_output_file_path()) as file:
        assert "aten::add" in names_in(file.read())
    assert observer.get_resources_dir().endswith("_resources")


def test_the_folder_for_extras_is_named_after_the_trace_and_made_on_request(tmp_path):
    path = str(tmp_path / "a.et.json")
    assert ExecutionTraceObserver.get_resources_dir_for_et_path(path) is None
    made = ExecutionTraceObserver.get_resources_dir_for_et_path(path, create_dir=True)
    assert made == str(tmp_path / "a.et_resources")
    assert ExecutionTraceObserver.get_resources_dir_for_et_path(path) == made
