"""kinetoscope.profile: the defaults, and what they leave on disk."""

import gc
import importlib.util
import socket
import time

import numpy
import pytest

import kinetoscope
from kinetoscope import GCPauses, JSONTraceHandler, ProfilerAction, SystemProfiler
from kinetoscope.errors import FileNameError, FolderNotEmptyError, SettingsError
from kinetoscope.formats.manifest import RankStarted, append_entry
from kinetoscope.recording.window import launch_folder
from kinetoscope.status.health import read_run_status
from kinetoscope.testing import MemoryTraceHandler
from support.trace_files import trace_json

QUIET = {"torch": False, "quiet": True}
"""A quiet run starts no process at its end that looks for a finding to tell."""


def run(profiler, batches=14, epochs=2):
    with profiler:
        for _ in range(epochs):
            for _ in profiler.batches(range(batches)):
                pass
    return profiler


def files(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*.json*") if path.parent.name != ".manifest")


def test_default_schedule_skips_one_batch_warms_up_one_and_records_ten_once(tmp_path):
    handler = MemoryTraceHandler()
    run(kinetoscope.profile(tmp_path, torch=False, handlers=handler))
    (cycle,) = handler.cycles
    batches = [record.batch for _, record, name in cycle.records() if name.name == "event/batch"]
    assert batches == list(range(1, 12))


@pytest.mark.parametrize("number", [int, numpy.int64])
def test_resumed_training_has_its_own_step_numbers(tmp_path, number):
    handlers = [JSONTraceHandler(), handler := MemoryTraceHandler()]
    run(kinetoscope.profile(tmp_path, first_step=number(12_000), handlers=handlers, **QUIET), epochs=1)
    (cycle,) = handler.cycles
    batches = [record.batch for _, record, name in cycle.records() if name.name == "event/batch"]
    assert batches == list(range(12_001, 12_012))
    assert [rank.step for rank in read_run_status(tmp_path).ranks] == [12_013]
    report = kinetoscope.analyze(tmp_path)
    assert sorted({row.step for row in report.steps}) == list(range(12_002, 12_012))
    assert report.run["all_steps"]["num_steps"] == 14
    assert report.run["all_steps"]["slowest_step"] in range(12_000, 12_014)


def test_the_traces_are_below_out_and_the_run_is_named_after_it(tmp_path):
    profiler = run(kinetoscope.profile(tmp_path / "digits", torch=False))
    assert files(tmp_path) == ["digits/traces/ep0-ba12-rank0.json.gz", "digits/traces/merged_trace.json.gz"]
    assert profiler.state.run_name == "digits"


def test_time_in_out_is_the_moment_the_run_began(tmp_path):
    profiler = run(kinetoscope.profile(f"{tmp_path}/{{time}}", **QUIET))
    assert profiler.state.run_name.startswith(time.strftime("%Y%m%d-"))
    assert (tmp_path / profiler.state.run_name / "traces").is_dir()


def test_second_run_of_two_ranks_gets_its_own_folder_although_all_is_shared(tmp_path, monkeypatch):
    for variable, value in {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_PORT": "29500"}.items():
        monkeypatch.setenv(variable, value)
    for rank, number in (("0", ""), ("1", ""), ("0", "-2"), ("1", "-2")):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setattr(launch_folder, "_chosen", {})  # as in another process
        profiler = kinetoscope.profile(f"{tmp_path}/{{time}}", torch=False, system=False)
        assert profiler.state.run_name == f"{socket.gethostname()}-29500{number}"
        append_entry(tmp_path / profiler.state.run_name / "traces", int(rank), _started(profiler))


def test_a_restarted_job_stays_in_its_folder(tmp_path, monkeypatch):
    environment = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "job7"}
    for variable, value in environment.items():
        monkeypatch.setenv(variable, value)
    for number in ("", "-2"):
        monkeypatch.setattr(launch_folder, "_chosen", {})
        profiler = kinetoscope.profile(f"{tmp_path}/{{time}}", torch=False, system=False)
        assert profiler.state.run_name == f"job7{number}"
        append_entry(tmp_path / profiler.state.run_name / "traces", 0, _started(profiler))
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    monkeypatch.setattr(launch_folder, "_chosen", {})
    assert kinetoscope.profile(f"{tmp_path}/{{time}}", torch=False).state.run_name == "job7-2"


def _started(profiler):
    return RankStarted(profiler.run.ranks, profiler.run.attempt)


def test_sources_can_be_left_out_or_brought_along(tmp_path):
    mine = SystemProfiler(profile_net=True)
    assert kinetoscope.profile(tmp_path, torch=False, system=mine).run.sources == [mine]
    assert kinetoscope.profile(tmp_path, torch=False, system=False).run.sources == []


def test_without_torch_installed_there_are_no_operators_and_no_error(tmp_path, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else find(name))
    (source,) = kinetoscope.profile(tmp_path).run.sources
    assert isinstance(source, SystemProfiler)


def test_a_schedule_of_ones_own_is_followed(tmp_path):
    handler = MemoryTraceHandler()
    schedule = lambda state: ProfilerAction.ACTIVE  # noqa: E731
    run(kinetoscope.profile(tmp_path, torch=False, schedule=schedule, handlers=[handler]), epochs=1)
    assert len(handler.spans("event/batch")) == 14


def test_a_handler_with_a_folder_of_another_run_is_refused_unless_it_may_overwrite(tmp_path):
    def profile_into(folder, **options):
        handler = kinetoscope.JSONTraceHandler(str(folder))
        return kinetoscope.profile(tmp_path / "out", handlers=handler, **QUIET, **options)

    run(profile_into(tmp_path / "traces"))
    with pytest.raises(FolderNotEmptyError, match="overwrite=True"):
        run(profile_into(tmp_path / "traces"))
    run(profile_into(tmp_path / "traces", overwrite=True))
    assert not (tmp_path / "out").exists()


def test_out_may_use_the_variables_of_file_names(tmp_path):
    run(kinetoscope.profile(f"{tmp_path}/node{{node_rank}}", **QUIET))
    assert files(tmp_path / "node0/traces") == ["ep0-ba12-rank0.json.gz", "merged_trace.json.gz"]


def test_an_unknown_variable_in_out_is_refused_by_name(tmp_path):
    with pytest.raises(FileNameError, match=r"\{b\}"):
        kinetoscope.profile(tmp_path / "a{b}c", torch=False)


def test_given_torch_profiler_and_handler_write_below_out_and_overwrite(tmp_path, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        torch = kinetoscope.TorchProfiler(record_shapes=True)
        handler = kinetoscope.JSONTraceHandler()
        run(kinetoscope.profile("runs/mine", torch=torch, handlers=handler, system=False, overwrite=True, quiet=True))
    assert {path.split("/")[2] for path in files(tmp_path)} == {"traces", "torch_traces"}
    assert "runs/mine/torch_traces/rank0.12.pt.trace.json" in files(tmp_path)
    assert "runs/mine/traces/merged_trace.json" in files(tmp_path)


@pytest.mark.parametrize("is_contained", [True, False])
def test_kinetos_own_file_is_left_only_where_no_handler_writes_all_of_it(tmp_path, is_contained):
    torch = pytest.importorskip("torch")
    schedule = kinetoscope.cyclic_schedule(warmup=1, active=2, per="run")
    handlers = None if is_contained else MemoryTraceHandler()
    settings = {"schedule": schedule, "system": False, "quiet": True, "strict": True}
    with kinetoscope.profile(tmp_path, handlers=handlers, **settings) as profiler:
        for _ in profiler.batches(range(4)):
            torch.ones(1)
    traces = files(tmp_path)
    assert traces == (
        ["traces/ep0-ba3-rank0.json.gz", "traces/merged_trace.json.gz"]
        if is_contained
        else ["torch_traces/rank0.3.pt.trace.json"]
    )
    assert "aten::ones" in {event["name"] for event in trace_json(tmp_path / traces[0])["traceEvents"]}
    assert not (tmp_path / "torch_traces").exists() or not is_contained
    assert not (tmp_path / "live").exists()


def test_a_folder_of_a_torch_profilers_own_stays(tmp_path):
    pytest.importorskip("torch")
    own = kinetoscope.TorchProfiler(str(tmp_path / "elsewhere"))
    run(kinetoscope.profile(tmp_path / "mine", torch=own, system=False, quiet=True))
    assert "elsewhere/rank0.12.pt.trace.json" in files(tmp_path)


def test_an_argument_that_is_no_torch_profiler_is_refused_by_name(tmp_path):
    with pytest.raises(SettingsError, match="torch must be True, False or a TorchProfiler, not 'yes'"):
        kinetoscope.profile(tmp_path, torch="yes")


@pytest.mark.parametrize("out", ["", "  ", None, 5, b"runs", ["runs"], True])
def test_invalid_folder_name_is_refused_and_nothing_is_created(tmp_path, monkeypatch, out):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SettingsError, match="out is the folder of the run"):
        run(kinetoscope.profile(out, torch=False))
    assert list(tmp_path.iterdir()) == []


NO_FLAG = "must be True or False, not "
ARGUMENTS = [
    ({"diagnose": "all"}, f"diagnose {NO_FLAG}'all'"),
    ({"report": "yes"}, f"report {NO_FLAG}'yes'"),
    ({"overwrite": "no"}, f"overwrite {NO_FLAG}'no'"),
    ({"strict": 1}, f"strict {NO_FLAG}1"),
    ({"quiet": None}, f"quiet {NO_FLAG}None"),
    ({"with_stack": "no"}, f"with_stack {NO_FLAG}'no'"),
    ({"record_shapes": 1}, f"record_shapes {NO_FLAG}1"),
    ({"profile_memory": "peak"}, f"profile_memory {NO_FLAG}'peak'"),
    ({"with_flops": 0}, f"with_flops {NO_FLAG}0"),
    ({"torch": None}, "torch must be True, False or a TorchProfiler, not None"),
    ({"torch": SystemProfiler()}, "torch must be True, False or a TorchProfiler, not <"),
    ({"system": None}, "system must be True, False or a SystemProfiler, not None"),
    ({"system": GCPauses()}, "system must be True, False or a SystemProfiler, not <"),
    ({"system": "cpu"}, "system must be True, False or a SystemProfiler, not 'cpu'"),
    ({"system_interval_s": "fast"}, "system_interval_s is a number of seconds"),
    ({"system_interval_s": 0}, "system_interval_s is a number of seconds, from 0.001 to 86,400; not 0"),
    ({"num_traces_to_keep": "all"}, "num_traces_to_keep is a number of traces, or -1 for all; not 'all'"),
    ({"num_traces_to_keep": 2.5}, "num_traces_to_keep is a number of traces, or -1 for all; not 2.5"),
    ({"schedule": False}, "schedule must be a function"),
    ({"schedule": ""}, "schedule must be a function"),
    ({"run_name": ""}, "run_name must be a string, not ''"),
    ({"run_name": 0}, "run_name must be a string, not 0"),
    ({"first_step": -1}, "first_step is the number of a step, from 0 to 1,000,000,000,000,000; not -1"),
    ({"first_step": 0.5}, "first_step is the number of a step"),
    ({"first_step": True}, "first_step is the number of a step"),
    ({"sources": None}, "sources contains None"),
    ({"handlers": "json"}, "handlers contains 'json'"),
    ({"upload_to": 3}, "upload_to must be a URL"),
    ({"grace_s": None}, "grace_s is a number of seconds"),
    ({"redact": "names"}, "redact must be a function"),
]


@pytest.mark.parametrize(("argument", "words"), ARGUMENTS)
def test_an_argument_that_cannot_work_is_refused_by_name(tmp_path, argument, words):
    with pytest.raises(SettingsError, match=words):
        kinetoscope.profile(tmp_path / "mine", **argument)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", [{"with_stack": True}, {"with_flops": False}, {"record_shapes": False}])
def test_torch_option_next_to_a_given_torch_profiler_is_refused_naming_both(tmp_path, option):
    pytest.importorskip("torch")
    ((name, value),) = option.items()
    with pytest.raises(SettingsError, match=rf"{name}={value} has no effect with torch=TorchProfiler.*\({name}="):
        kinetoscope.profile(tmp_path, torch=kinetoscope.TorchProfiler(), **option)
    assert kinetoscope.profile(tmp_path, system=False, **option).run.sources


def test_without_torch_options_may_be_false_but_not_true(tmp_path):
    assert kinetoscope.profile(tmp_path, torch=False, with_stack=False, with_flops=False)
    with pytest.raises(SettingsError, match=r"with_stack=True has no effect with torch=False"):
        kinetoscope.profile(tmp_path, torch=False, with_stack=True)


def test_activities_and_the_experimental_configuration_are_those_of_torchs_profiler(tmp_path):
    kinetoscope_torch = pytest.importorskip("kinetoscope.torch")
    asked = {
        "activities": [kinetoscope_torch.ProfilerActivity.CPU],
        "experimental_config": kinetoscope_torch._ExperimentalConfig(verbose=True),
    }
    with kinetoscope.profile(tmp_path, system=False, quiet=True, **asked) as profiler:
        (source,) = (each for each in profiler.run.sources if isinstance(each, kinetoscope.TorchProfiler))
        profiler.step()
        assert source.profiler.activities == {kinetoscope_torch.ProfilerActivity.CPU}
        assert source.profiler.experimental_config is asked["experimental_config"]
    with pytest.raises(SettingsError, match=r"activities=.* has no effect with torch=TorchProfiler"):
        kinetoscope.profile(tmp_path / "second", torch=kinetoscope.TorchProfiler(), activities=asked["activities"])


def test_interval_next_to_a_given_system_profiler_is_refused_naming_both(tmp_path):
    words = r"system_interval_s=0.2 has no effect with system=SystemProfiler.*\(stats_thread_interval_seconds=0.2"
    with pytest.raises(SettingsError, match=words):
        kinetoscope.profile(tmp_path, torch=False, system=SystemProfiler(), system_interval_s=0.2)
    with pytest.raises(SettingsError, match=r"system_interval_s=0.2 has no effect with system=False"):
        kinetoscope.profile(tmp_path, torch=False, system=False, system_interval_s=0.2)
    (source,) = kinetoscope.profile(tmp_path, torch=False, system_interval_s=0.2).run.sources
    assert source.stats_thread_interval_seconds == 0.2


def test_two_numbers_of_traces_to_keep_are_refused_naming_both(tmp_path):
    with pytest.raises(SettingsError, match=r"num_traces_to_keep=3 would have no effect .*num_traces_to_keep=5"):
        kinetoscope.profile(
            tmp_path, torch=False, handlers=kinetoscope.JSONTraceHandler(num_traces_to_keep=5), num_traces_to_keep=3
        )


@pytest.mark.parametrize("setting", [{"overwrite": True}, {"num_traces_to_keep": 3}])
def test_settings_of_files_are_refused_where_nothing_writes_files(tmp_path, setting):
    ((name, value),) = setting.items()
    with pytest.raises(SettingsError, match=f"{name}={value} has no effect: neither handlers nor torch write files"):
        kinetoscope.profile(tmp_path, torch=False, handlers=MemoryTraceHandler(), **setting)


def test_a_report_that_nothing_writes_traces_for_is_refused(tmp_path):
    with pytest.raises(SettingsError, match=r"report=True has no effect: no handler in handlers writes traces"):
        kinetoscope.profile(tmp_path, torch=False, handlers=MemoryTraceHandler(), report=True)


def test_further_sources_record_with_the_others_only_on_request(tmp_path):
    plain, asked = MemoryTraceHandler(), MemoryTraceHandler()
    for handler, sources in ((plain, ()), (asked, [GCPauses()])):
        with kinetoscope.profile(tmp_path, torch=False, handlers=handler, sources=sources) as profiler:
            for _ in profiler.batches(range(14)):
                gc.collect()
    assert plain.events("gc") == []
    assert len(asked.events("gc")) >= 11


def test_diagnose_adds_the_cheap_sources_that_were_not_brought_along(tmp_path):
    mine = GCPauses()
    assert [source for source in _sources(tmp_path, diagnose=True) if isinstance(source, GCPauses)]
    both = _sources(tmp_path, diagnose=True, sources=[mine])
    assert [source for source in both if isinstance(source, GCPauses)] == [mine]
    assert not [source for source in _sources(tmp_path) if isinstance(source, GCPauses)]


def _sources(folder, **options):
    return kinetoscope.profile(folder, torch=False, **options).run.sources


def test_something_that_is_no_source_is_refused_by_the_name_of_the_argument(tmp_path):
    with pytest.raises(SettingsError, match="sources contains the class GCPauses"):
        kinetoscope.profile(tmp_path, torch=False, sources=[GCPauses])


def test_without_the_library_for_uploads_files_stay_and_strict_raises(tmp_path, monkeypatch, caplog):
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "gcsfs" else find_spec(name))
    settings = {"upload_to": "gs://bucket/runs", "torch": False, "system": False, "quiet": True}
    with kinetoscope.profile(tmp_path / "run", schedule=lambda state: ProfilerAction.ACTIVE, **settings) as profiler:
        profiler.step()
    (record,) = caplog.records
    assert "files stay on this machine" in record.message
    assert "pip install 'kinetoscope[gcs]'" in record.message
    assert list((tmp_path / "run" / "traces").glob("ep*.json.gz"))
    with pytest.raises(SettingsError, match="needs gcsfs"):
        kinetoscope.profile(tmp_path / "strict", strict=True, **settings)
    with pytest.raises(SettingsError, match="not a URL"):
        kinetoscope.profile(tmp_path / "wrong", upload_to="bucket/runs")
