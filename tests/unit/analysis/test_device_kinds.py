"""analysis/windows/window.py: events of any accelerator are work of a device, or reported as not understood."""

import json

import pytest

import kinetoscope
from kinetoscope.analysis import rank_sample
from support.report_consistency import assert_consistent_report, screen
from trainsim import Fault, Settings, simulate


def with_category(folder, change, num_ranks=1):
    """Return a run, with the categories that ``change`` has for those of rank 0, and its report."""
    run = simulate(Settings(num_ranks=num_ranks, num_steps=4))
    path, *_ = run.write(folder)
    trace = json.loads(path.read_text())
    for event in trace["traceEvents"]:
        if event.get("ph") == "X":
            event["cat"] = change.get(event["cat"], event["cat"])
    path.write_text(json.dumps(trace))
    return run, kinetoscope.analyze(folder, cache=False)


def test_events_of_mtia_are_work_of_a_device_to_the_nanosecond(tmp_path):
    run, report = with_category(tmp_path, {"kernel": "mtia_ccp_events", "cuda_runtime": "mtia_runtime"})
    (row,), (truth,) = report.ranks, run.truth.ranks
    assert {name: getattr(row, name) for name in truth} == truth
    assert not any("device" in note for note in report.run["notes"])
    assert kinetoscope.load(next(tmp_path.iterdir())).tracks.collect()["kind"].to_list().count("stream") == 1


@pytest.mark.parametrize("category", ["hpu_op", "mtia_insight", "npu_kernel_of_tomorrow"])
def test_unclassified_device_events_are_named_and_not_reported_as_no_device(category, tmp_path):
    run, report = with_category(tmp_path, dict.fromkeys(("kernel", "gpu_memcpy"), category))
    (window,) = run.ranks[0].windows
    (note,) = (note for note in report.run["notes"] if "device" in note)
    assert note.startswith(f"Unknown device events: {len(window.queued):,} of category {category}.")
    assert report.ranks[0].busy_ns is None


@pytest.mark.parametrize("categories", [("kernel",), ("kernel", "gpu_memcpy")])
def test_no_conclusions_from_cpu_activity_next_to_an_unclassified_device(categories, tmp_path):
    """The host of this loop is ahead of its device: it seemed to take 6.9 ms for 13.2, and to wait for data most."""
    for path in simulate(Settings(num_ranks=1, step_ns=15_000_000, reads_loss="never")).write(tmp_path):
        trace = json.loads(path.read_text())
        for event in trace["traceEvents"]:
            event["cat"] = "npu_kernel" if event.get("cat") in categories else event.get("cat")
        path.write_text(json.dumps(trace))
    report = kinetoscope.analyze(tmp_path, cache=False)
    run = report.run
    assert (run["bound_by"], run["parts"]["device"], run["flops_per_s"], run["mfu"]) == ("unknown", None, None, None)
    assert report.findings == []
    assert "No findings, since parts of the trace are unknown: see the notes." in screen(report)
    assert any("a step may take longer, and findings are switched off" in note for note in run["notes"])
    assert_consistent_report(report)


def test_rank_without_a_device_is_named_next_to_an_unclassified_one(tmp_path):
    with_category(tmp_path, {"kernel": "hpu_op", "gpu_memcpy": "hpu_op"}, num_ranks=2)
    other = simulate(Settings(num_ranks=2, num_steps=4, has_device=False)).write(tmp_path / "others")[1]
    report = kinetoscope.analyze([tmp_path / "rank0.json", other], cache=False)
    assert "No GPU work was recorded on rank 1." in report.run["notes"]


def test_large_run_with_an_unclassified_unreplayed_rank_gives_no_conclusions(tmp_path, monkeypatch):
    monkeypatch.setattr(rank_sample, "MAX_REPLAYED", 2)
    late = Fault(kind="late_host", ranks=(0, 1), cost_ns=3_000_000)
    files = simulate(Settings(num_ranks=4, num_steps=8, has_memory=False, faults=(late,))).write(tmp_path)
    files[3].write_text(files[3].read_text().replace('"kernel"', '"npu_kernel"'))
    report = kinetoscope.analyze(tmp_path, cache=False)
    assert (report.run["bound_by"], report.findings, report.is_judged) == ("unknown", [], False)
    assert report.run["notes"][0].startswith("Unknown device events")  # the reason comes first


def test_missing_device_values_of_a_rank_are_unknown_and_not_0(tmp_path):
    files = simulate(Settings(num_ranks=2, num_steps=4)).write(tmp_path)
    files[1].write_text(files[1].read_text().replace('"kernel"', '"npu_kernel"'))
    lines = screen(kinetoscope.analyze(tmp_path, cache=False))
    rows = lines[lines.index("Step time by rank, ms/step") + 1 :]
    assert "compute" in rows[0]
    assert "unknown" not in rows[1]
    assert "unknown" in rows[2]
