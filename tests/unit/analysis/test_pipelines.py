"""analysis/findings/pipeline.py: slow stages, and the bubble of a pipeline."""

import pytest

import kinetoscope
from trainsim import Fault, Settings
from trainsim.analyses import analyze_cached, write_changed

MS = 1_000_000


def pipeline(*faults, **settings):
    plain = {"num_ranks": 4, "layout": "pipeline", "pipeline": "1F1B", "num_microbatches": 4, "num_layers": 2}
    plain |= {"num_steps": 8, "step_ns": 10 * MS, "transfer_share": 0.001, "noise": 0.03}
    return Settings(faults=faults, **(plain | settings))


@pytest.mark.parametrize("num_cycles", [1, 2])
@pytest.mark.parametrize("stage", range(4))
def test_a_slow_stage_is_a_straggler_with_its_saving(stage, num_cycles):
    fault = Fault(kind="late_device", cost_ns=2 * MS, ranks=(stage,))
    run, report = analyze_cached(pipeline(fault, num_cycles=num_cycles, reads_loss="never"))
    first = report.findings[0]
    assert (first.kind, first.where.ranks) == ("straggler", (stage,))
    assert f"stage {stage} " in first.title
    assert [row.cause for row in report.stragglers if row.rank == stage] == ["device"]
    gain_ns = run.saving_ns_per_step(run.without())
    assert first.saving_ns_per_step == pytest.approx(gain_ns, abs=0.03 * run.time_ns / run.num_steps)
    assert report.saving_of_fix(1) == pytest.approx(first.saving_ns_per_step, abs=1)


def test_a_stage_that_is_slow_on_its_host_has_the_cause_host():
    fault = Fault(kind="late_host", cost_ns=25 * MS, ranks=(2,))
    report = analyze_cached(pipeline(fault, reads_loss="each step"))[1]
    assert (report.findings[0].kind, report.findings[0].where.ranks) == ("straggler", (2,))
    assert [row.cause for row in report.stragglers if row.rank == 2] == ["host"]


@pytest.mark.parametrize("seed", range(3))
def test_a_stage_with_more_host_work_that_delays_no_stage_is_not_named(seed):
    settings = pipeline(
        Fault(kind="late_device", cost_ns=4 * MS, ranks=(2,)),
        Fault(kind="late_host", cost_ns=2 * MS, ranks=(0,)),
        reads_loss="never",
        seed=seed,
    )
    first = analyze_cached(settings)[1].findings[0]
    assert (first.kind, first.where.ranks) == ("straggler", (2,))


@pytest.mark.parametrize("num_microbatches", [4, 8])
def test_a_balanced_pipeline_has_its_bubble_and_nothing_else(num_microbatches):
    report = analyze_cached(pipeline(num_microbatches=num_microbatches))[1]
    assert {finding.kind for finding in report.findings if finding.confidence != "low"} <= {"pipeline_bubble"}
    (bubble,) = (finding for finding in report.findings if finding.kind == "pipeline_bubble")
    evidence = dict(bubble.evidence)
    assert evidence["share_of_schedule"] == pytest.approx(3 / (num_microbatches + 3), abs=1e-4)
    assert (evidence["num_stages"], evidence["num_microbatches"]) == (4, num_microbatches)
    assert 0 < evidence["warm_up_ns"] < evidence["bubble_ns"]
    assert 0 < evidence["cool_down_ns"] < evidence["bubble_ns"]
    assert bubble.saving_ns_per_step is None
    assert bubble.confidence != "high"


def test_no_pipeline_is_advised_other_buckets():
    for fault in ((), (Fault(kind="late_device", cost_ns=2 * MS, ranks=(3,)),)):
        report = analyze_cached(pipeline(*fault))[1]
        assert not [finding for finding in report.findings if "bucket_cap_mb" in finding.advice]
        assert not [note for note in report.run["notes"] if "missing" in note]


def test_a_stage_without_its_trace_is_missing(tmp_path):
    path = write_changed(lambda trace: None, pipeline(), tmp_path)
    report = kinetoscope.analyze([path / f"rank{rank}.json" for rank in (0, 1, 3)], cache=False)
    assert [finding for finding in report.findings if finding.confidence == "high"] == []
    assert [finding for finding in report.findings if finding.kind == "straggler"] == []


@pytest.mark.parametrize(("faults", "bound_by"), [((), "communication"), ((3,), "ranks")])
def test_a_pipeline_with_a_slow_stage_is_limited_by_that_rank(faults, bound_by):
    """Both wait for messages; in a balanced one, that is the bubble of the schedule."""
    late = [Fault(kind="late_device", cost_ns=3 * MS, ranks=(rank,)) for rank in faults]
    report = analyze_cached(pipeline(*late, reads_loss="each step"))[1]
    assert report.run["bound_by"] == bound_by
