"""Advice on input-bound loops: never more than the advised change can gain on the cores that are free."""

import json

import pytest

pytest.importorskip("polars")
import kinetoscope
from kinetoscope.analysis.unrecorded_steps import subtract_recording_cost
from trainsim.run import simulate
from trainsim.settings import Fault, Settings

SECOND = 1_000_000_000


def input_bound(
    folder,
    *,
    build_ns,
    own=1.0,
    others=0.0,
    cores=8,
    wall_ns=SECOND,
    batch_size=32,
    is_marked=False,
    sent=None,
    **settings,
):
    """Return the finding on a loop on the CPU that builds its batches itself, and its evidence.

    Args:
        own: cores in use by the run, and ``others`` those in use by other processes.
        sent: number of tensors of a batch and their bytes.
        is_marked: give each fetch a span of ours around torch's, as a recorded run has.
    """
    fault = Fault(kind="slow_loader", cost_ns=build_ns)
    settings = {"num_ranks": 1, "num_steps": 10, "num_workers": 0, "has_device": False, "jitter_ns": 0} | settings
    used = {"wall_ns": wall_ns, "own_ns": round(own * wall_ns), "busy_ns": round((own + others) * wall_ns)}
    notes = {
        ("processors", "processors"): used | {"cores": cores},
        ("DataLoader", "loader"): {"num_workers": settings["num_workers"], "batch_size": batch_size} | (sent or {}),
    }
    for path in simulate(Settings(faults=(fault,), **settings)).write(folder):
        trace = json.loads(path.read_text(encoding="utf-8"))
        step = next(event for event in trace["traceEvents"] if event["name"].startswith("ProfilerStep#"))
        place = {key: step[key] for key in ("pid", "tid", "ts")}
        fetches = [event for event in trace["traceEvents"] if event["name"].startswith("enumerate(DataLoader)")]
        trace["traceEvents"] += [
            {**event, "name": "event/dataloader", "cat": "dataloader", "ts": event["ts"] - 1, "dur": event["dur"] + 2}
            for event in fetches
            if is_marked
        ]
        trace["traceEvents"] += [
            {"ph": "i", "s": "t", "name": name, "cat": category, "args": args, **place}
            for (name, category), args in notes.items()
            if own is not None or name == "DataLoader"
        ]
        path.write_text(json.dumps(trace), encoding="utf-8")
    report = kinetoscope.analyze(folder, cache=False)
    found = next(finding for finding in report.findings if finding.kind == "input_bound")
    return found, dict(found.evidence)


def test_workers_are_advised_with_what_the_claim_rests_on_where_cores_are_free(tmp_path):
    found, evidence = input_bound(tmp_path, build_ns=8_000_000, batch_size=4)
    assert "num_workers=" in found.advice
    assert "persistent_workers=True" in found.advice
    assert found.confidence == "high"
    assert "reachable_saving_ns" not in evidence
    assert (evidence["num_cores"], evidence["num_free_cores"]) == (8, 7)
    assert evidence["median_batch_ns"] == pytest.approx(8_000_000, rel=0.05)
    assert evidence["batch_transfer_ns"] > 0


@pytest.mark.parametrize("is_marked", [False, True])
def test_no_more_workers_are_advised_than_free_cores(tmp_path, is_marked):
    found, _ = input_bound(tmp_path, build_ns=60_000_000, cores=2, batch_size=4, is_marked=is_marked)
    assert "num_workers=2" in found.advice


@pytest.mark.parametrize(("own", "others"), [(2.0, 0.0), (1.0, 1.0), (1.5, 0.4)])
def test_no_workers_are_advised_on_two_busy_cores(tmp_path, own, others):
    found, evidence = input_bound(tmp_path, build_ns=8_000_000, own=own, others=others, cores=2, batch_size=4)
    assert "num_workers=" not in found.advice
    assert found.confidence == "medium"
    assert evidence["reachable_saving_ns"] < 0.1 * found.saving_ns_per_step


def test_workers_save_no_more_than_the_cores_allow(tmp_path):
    """The loop computes on both cores while it does not build a batch, so a worker takes one of them from it."""
    found, evidence = input_bound(tmp_path, build_ns=8_000_000, own=1.25, cores=2, batch_size=4, step_ns=8_000_000)
    assert "num_workers=1, persistent_workers=True" in found.advice
    assert found.confidence == "medium"
    assert evidence["reachable_saving_ns"] < 0.8 * found.saving_ns_per_step


def test_cheap_batches_are_to_be_read_at_once(tmp_path):
    found, evidence = input_bound(tmp_path, build_ns=700_000)
    assert "BatchSampler" in found.advice
    assert "num_workers=" not in found.advice
    assert found.confidence != "high"
    assert evidence["reachable_saving_ns"] < 0.8 * found.saving_ns_per_step


@pytest.mark.parametrize("sent", [{"tensors": 2, "bytes": 3_500_000}, {"tensors": 20, "bytes": 80_000}])
def test_batches_that_take_long_to_send_get_no_workers(tmp_path, sent):
    found, _ = input_bound(tmp_path, build_ns=7_500_000, batch_size=32, sent=sent)
    assert "num_workers=" not in found.advice
    assert found.confidence != "high"


def test_many_cheap_samples_on_busy_cores_are_to_be_read_at_once(tmp_path):
    found, _ = input_bound(tmp_path, build_ns=6_000_000, own=1.0, others=1.0, cores=2, batch_size=1024)
    assert "BatchSampler" in found.advice
    assert found.confidence != "high"


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_window_that_is_too_short_to_know_free_cores_is_not_sure(tmp_path, num_workers):
    found, evidence = input_bound(tmp_path, build_ns=8_000_000, wall_ns=50_000_000, num_workers=num_workers)
    assert "too short to show it" in found.advice
    assert found.confidence == "medium"
    assert "num_free_cores" not in evidence


def test_a_short_window_shows_that_the_job_itself_leaves_no_cores(tmp_path):
    """Linux counts the CPU time of this job in ns, that of others in ticks: only the first is known in 50 ms."""
    found, evidence = input_bound(tmp_path, build_ns=8_000_000, own=1.9, cores=2, wall_ns=50_000_000, batch_size=4)
    assert "num_workers=" not in found.advice
    assert found.confidence == "medium"
    assert evidence["reachable_saving_ns"] < 0.1 * found.saving_ns_per_step
    assert "num_free_cores" not in evidence


def test_recording_that_leaves_cores_idle_adds_nothing_to_the_saving_by_workers(tmp_path):
    """Recording takes 35 % of the step, in which the loop's Python runs on one of the two cores."""
    found, evidence = input_bound(tmp_path, build_ns=8_000_000, own=1.4, cores=2, batch_size=4)
    step_ns = evidence["min_step_ns"] / 0.7
    about = {"recorded_ns": step_ns, "unrecorded_ns": 0.65 * step_ns}
    [unrecorded] = subtract_recording_cost([found], about, step_ns, 1.0)
    busy_share = (0.7 - 0.35 / 2) / 0.65
    assert unrecorded.reachable_share == pytest.approx(1 - busy_share, abs=0.01)
    assert unrecorded.reachable_share < found.reachable_share


def test_a_pool_is_made_as_large_as_it_must_be(tmp_path):
    found, evidence = input_bound(tmp_path, build_ns=20_000_000, num_workers=2, cores=32)
    assert "persistent_workers=True" in found.advice
    assert evidence["num_free_cores"] == 31
    wanted = int(found.advice.partition("num_workers=")[2].partition(",")[0])
    assert 2 < wanted < 31


def test_batches_built_about_as_fast_as_they_are_sent_are_read_at_once(tmp_path):
    found, _ = input_bound(tmp_path, build_ns=900_000, num_workers=1, step_ns=300_000)
    assert "BatchSampler" in found.advice
    assert found.confidence != "high"


@pytest.mark.parametrize("ratio", [0.1, 0.9])
def test_batches_that_only_recording_makes_expensive_get_no_workers(tmp_path, ratio):
    found, _ = input_bound(tmp_path, build_ns=8_000_000, batch_size=4)
    about = {"recorded_ns": 12_000_000, "unrecorded_ns": 12_000_000 * ratio}
    [unrecorded] = subtract_recording_cost([found], about, 12_000_000, ratio)
    evidence = dict(unrecorded.evidence)
    if ratio == 0.9:
        assert unrecorded.advice == found.advice
        return
    assert "BatchSampler" in unrecorded.advice
    assert "num_workers=" not in unrecorded.advice
    assert evidence["median_batch_ns"] == pytest.approx(800_000, rel=0.05)
    assert (found.confidence, unrecorded.confidence) == ("high", "medium")
