"""Truncated files: of all ranks, the steps up to the last whole one of the truncated rank are used."""

import io
import json
import sys
from dataclasses import replace

import pytest

import kinetoscope
from kinetoscope.analysis import rank_sample
from kinetoscope.cli import main
from trainsim import Fault, Settings, simulate
from trainsim.analyses import write_changed

SETTINGS = Settings(num_ranks=4, num_steps=12, reads_loss="each step")
LATE = Fault(kind="late_host", cost_ns=3_000_000, ranks=(2,))


def report_on(folder, *, share, rank=0, **settings):
    """Return the report on a run in which the file of one rank ends after this share of it."""
    paths = simulate(replace(SETTINGS, **settings)).write(folder)
    text = paths[rank].read_text(encoding="utf-8")
    paths[rank].write_text(text[: round(share * len(text))], encoding="utf-8")
    return kinetoscope.analyze(folder, cache=False)


@pytest.mark.parametrize("has_device", [True, False])
def test_straggler_is_found_in_the_steps_common_to_all_files(tmp_path, has_device):
    whole = simulate(replace(SETTINGS, faults=(LATE,), has_device=has_device))
    step_ns = kinetoscope.analyze(whole.write(tmp_path / "whole")[0].parent, cache=False).run["step_ns"]
    report = report_on(tmp_path / "cut", share=0.9, faults=(LATE,), has_device=has_device)
    assert report.run["step_ns"] == pytest.approx(step_ns, rel=0.05)
    assert 3 < report.run["num_steps"] < 12
    assert {row.rank for row in report.steps if row.step == report.steps[-1].step} == {0, 1, 2, 3}
    found = next(finding for finding in report.findings if finding.kind == "straggler")
    assert (found.where.ranks, found.confidence) == ((2,), "medium")
    assert any("(rank 0) is truncated: only steps up to" in note for note in report.run["notes"])


def test_without_a_whole_step_nothing_is_concluded(tmp_path):
    """The part of the file that has the kernels is missing."""
    report = report_on(tmp_path, share=0.3, faults=(LATE,))
    assert (report.findings, report.is_judged) == ([], False)
    assert any("is truncated, and none of its steps is whole" in note for note in report.run["notes"])


def test_a_healthy_run_with_a_truncated_file_has_no_finding(tmp_path):
    report = report_on(tmp_path, share=0.9)
    assert [finding for finding in report.findings if finding.confidence != "low"] == []
    assert report.is_judged


def test_all_work_of_a_used_step_counts_though_the_host_runs_ahead(tmp_path):
    paths = simulate(replace(SETTINGS, reads_loss="never")).write(tmp_path)
    compute_ns = {row.rank: row.device_compute_ns for row in kinetoscope.analyze(tmp_path, cache=False).steps[:4]}
    text = paths[0].read_text(encoding="utf-8")
    paths[0].write_text(text[: round(0.95 * len(text))], encoding="utf-8")
    rows = kinetoscope.analyze(tmp_path, cache=False).steps
    last = [row for row in rows if row.step == rows[-1].step]
    assert [row.device_compute_ns for row in last] == pytest.approx([*compute_ns.values()], rel=0.1)


def test_a_truncated_trace_from_a_pipe_is_read_once(tmp_path, monkeypatch, capsys):
    (path,) = simulate(replace(SETTINGS, num_ranks=1)).write(tmp_path)
    data = path.read_bytes()
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data[: round(0.9 * len(data))])))
    assert main(["summary", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["run"]["num_steps"] > 3


def test_a_truncated_file_outside_of_the_replayed_sample_limits_it_too(tmp_path, monkeypatch):
    monkeypatch.setattr(rank_sample, "MAX_REPLAYED", 2)
    report = report_on(tmp_path, share=0.9, rank=1, num_ranks=5, faults=(replace(LATE, ranks=(4,)),))
    assert report.run["num_steps"] < 12
    assert [found.confidence for found in report.findings if found.kind == "straggler"] == ["medium"]


@pytest.mark.parametrize("has_device", [True, False])
def test_the_step_in_which_a_run_ended_is_no_step(tmp_path, has_device):
    """It took three times as long so far, waiting for a file."""
    settings = Settings(num_ranks=1, num_steps=9, step_spans="event/batch", has_device=has_device)
    whole = kinetoscope.analyze(simulate(settings).write(tmp_path / "whole")[0], cache=False)

    def end_in_last_step(trace):
        last = max((event for event in trace["traceEvents"] if event["name"] == "event/batch"), key=begin_of)
        last["dur"] *= 3
        last["args"] |= {"cut": "open when its window closed"}

    (tmp_path / "ended").mkdir()
    report = kinetoscope.analyze(write_changed(end_in_last_step, settings, tmp_path / "ended"), cache=False)
    assert report.run["num_steps"] == whole.run["num_steps"] - 1
    assert report.steps == [replace(row, **changed_by_end(row, report)) for row in whole.steps[:-1]]
    assert [row.num_calls for row in report.operators] != [row.num_calls for row in whole.operators]


def begin_of(event):
    return event["ts"]


def changed_by_end(row, report):
    """Return the values of the last whole step that nothing follows now."""
    last = report.steps[-1]
    if row.step != last.step:
        return {}
    names = ("between_ns", "evaluation_ns", "device_idle_ns", "flops_per_s", "mfu")
    return {name: getattr(last, name) for name in names}
