"""analysis/analyze.py: which part of a run a report is about, and who does the work."""

import json
import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import replace

import polars as pl
import pytest

import kinetoscope
from kinetoscope.analysis import rank_sample
from kinetoscope.analysis.run_report import TABLES
from kinetoscope.errors import SettingsError
from trainsim import Fault, Settings, simulate


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two ranks of ten steps, whose clocks are apart."""
    folder = tmp_path_factory.mktemp("traces")
    simulate(Settings(num_ranks=2, num_steps=10, offset_ns=5_000_000)).write(folder)
    return folder


@pytest.fixture(scope="module")
def report(folder):
    return kinetoscope.analyze(folder, cache=False)


def test_processes_of_a_pool_find_the_same_as_this_one(folder, report):
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        found = kinetoscope.analyze(folder, cache=False, executor=pool)
    assert found.to_dict() == report.to_dict()


def test_threads_and_loaded_traces_give_an_equal_report_without_folder_title(folder, report):
    traces = kinetoscope.load(folder, cache=False)
    whole = report.to_dict() | {"run": report.run | {"title": None}}
    with ThreadPoolExecutor(2) as pool:
        assert kinetoscope.analyze(traces, executor=pool).to_dict() == whole
    assert kinetoscope.analyze(iter(traces)).to_dict() == whole


def test_with_last_s_a_report_is_about_the_last_seconds_of_each_rank(folder, report):
    last_ns = [row for row in report.steps if row.rank == 0][-3:]
    last_s = (last_ns[-1].begin_ns + last_ns[-1].duration_ns - last_ns[0].begin_ns + 3_000_000) / 1e9
    found = kinetoscope.analyze(folder, cache=False, last_s=last_s)
    assert [(row.rank, row.step, row.duration_ns) for row in found.steps] == [
        (row.rank, row.step, row.duration_ns) for row in report.steps[-6:]
    ]


def test_more_seconds_than_were_recorded_are_all_of_them(folder, report):
    assert kinetoscope.analyze(folder, cache=False, last_s=1e6).to_dict() == report.to_dict()


def test_steps_with_the_same_numbers_are_all_counted(tmp_path):
    events = [
        {"ph": "X", "name": f"ProfilerStep#{number}", "pid": 1, "tid": 1, "ts": 100 * index, "dur": 90}
        for index, number in enumerate([0, 1, 2, 0, 1, 2])
    ]
    (tmp_path / "rank0.json").write_text(json.dumps({"traceEvents": events}))
    assert kinetoscope.analyze(tmp_path, cache=False).run["num_steps"] == 6


@pytest.mark.parametrize("last_s", [0, -1, float("nan")])
def test_no_seconds_at_all_are_refused(folder, last_s):
    with pytest.raises(SettingsError, match="more than 0 seconds"):
        kinetoscope.analyze(folder, last_s=last_s)


def test_the_command_takes_the_last_seconds_of_a_pipe(folder, capsys, monkeypatch):
    import io
    import sys

    from kinetoscope.cli import main

    text = next(folder.glob("*.json")).read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert main(["summary", "--json", "--last", "0.011", "-"]) == 0
    assert 1 <= json.loads(capsys.readouterr().out)["run"]["num_steps"] <= 4
    with pytest.raises(SystemExit):
        main(["summary", "--last", "soon", "-"])
    assert "Write a number above 0" in capsys.readouterr().err


def test_large_run_has_rows_of_all_ranks_and_replays_the_straggler(tmp_path, monkeypatch):
    monkeypatch.setattr(rank_sample, "MAX_REPLAYED", 3)
    late = Fault(kind="late_host", ranks=(4,), cost_ns=3_000_000)
    run = simulate(Settings(num_ranks=5, num_steps=8, has_memory=False, faults=(late,)))
    run.write(tmp_path)
    report = kinetoscope.analyze(tmp_path, cache=False)
    assert {row.rank for row in report.steps} == {row.rank for row in report.ranks} == set(range(5))
    assert all(row.num_ranks == 5 for row in report.collectives if row.step)
    assert [row.rank for row in report.stragglers] == [4]
    assert [(finding.kind, finding.where.ranks) for finding in report.findings[:1]] == [("straggler", (4,))]
    assert report.graph.nodes["rank"].unique().drop_nulls().sort().to_list() == [0, 1, 4]
    assert any("3 of the 5 ranks" in note for note in report.run["notes"])


def test_many_traces_of_few_ranks_are_no_large_run(tmp_path):
    run = simulate(Settings(num_ranks=1, num_steps=1, num_cycles=130, num_layers=1, step_ns=600_000, has_memory=False))
    assert not rank_sample.is_large(list(map(str, run.write(tmp_path))))
    assert rank_sample.is_large([f"rank{rank}.json" for rank in range(129)])
    assert rank_sample.is_large([f"trace{rank}.json" for rank in range(129)])


def test_each_table_of_a_report_is_a_frame_with_a_row_for_each_of_its_rows(report):
    steps = report.frame("steps")
    assert steps["duration_ns"].to_list() == [row.duration_ns for row in report.steps]
    for table in TABLES:
        assert len(report.frame(table)) == len(getattr(report, table))
    assert report.frame("collectives")["starts_ns"].to_list() == [list(row.starts_ns) for row in report.collectives]


def test_a_frame_without_rows_has_the_columns_of_its_rows(report):
    empty = replace(report, steps=[], findings=[])
    assert empty.frame("steps").schema == report.frame("steps").schema
    assert "saving_ns_per_step" in empty.frame("findings").columns
    assert set(report.frame("steps").schema.dtypes()) == {pl.Int64, pl.Float64}


def test_a_table_that_a_report_does_not_have_is_an_error_that_names_those_it_has(report):
    with pytest.raises(SettingsError, match="steps"):
        report.frame("step")
