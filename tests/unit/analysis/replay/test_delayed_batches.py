"""analysis/replay/delayed_batches.py: which fetches waited for a loader's workers, and which only cost time."""

from dataclasses import replace

import pytest

from trainsim import Fault, Settings
from trainsim.analyses import analyze_cached

FETCH_NS = 120_000
SHORT_FETCHES = {
    "a loop that reads its loss in every third step": Settings(
        seed=1,
        num_steps=12,
        reads_loss="each step",
        reads_loss_every=3,
        fetch_ns=FETCH_NS,
        faults=(Fault(kind="slow_network", cost_ns=900_000),),
    ),
    "gradients that are accumulated": Settings(
        seed=2,
        num_steps=10,
        num_accumulated=4,
        num_layers=2,
        fetch_ns=FETCH_NS,
        faults=(Fault(kind="late_host", cost_ns=9_000_000, ranks=(1,)),),
    ),
    "short steps": Settings(
        seed=3,
        num_steps=30,
        step_ns=500_000,
        fetch_ns=FETCH_NS,
        faults=(Fault(kind="late_host", cost_ns=700_000, ranks=(1,)),),
    ),
}


@pytest.mark.parametrize("name", SHORT_FETCHES)
def test_short_fetches_hide_no_saving(name):
    run, report = analyze_cached(SHORT_FETCHES[name])
    first, step_ns = report.findings[0], run.time_ns / run.num_steps
    assert first.kind == run.settings.faults[0].finding
    assert first.confidence == "high"
    assert first.saving_ns_per_step == pytest.approx(run.saving_ns_per_step(run.without()), abs=0.02 * step_ns)


@pytest.mark.parametrize("workers_do", ["nothing", "compute"])
@pytest.mark.parametrize("name", SHORT_FETCHES)
def test_short_fetches_are_no_waits(name, workers_do):
    _, report = analyze_cached(replace(SHORT_FETCHES[name], faults=(), workers_do=workers_do))
    assert "input_bound" not in [finding.kind for finding in report.findings]


@pytest.mark.parametrize("step_ns", [500_000, 3_000_000])
def test_unavoidable_cost_of_a_fetch_is_not_saved(step_ns):
    """The workers of the slow loader are busy all the time, as their samples show."""
    fault = Fault(kind="slow_loader", cost_ns=4 * step_ns)
    settings = Settings(
        seed=4, num_ranks=1, num_steps=20, step_ns=step_ns, fetch_ns=step_ns // 8, workers_do="compute", faults=(fault,)
    )
    run, report = analyze_cached(settings)
    (finding,) = report.findings
    assert (finding.kind, finding.confidence) == ("input_bound", "high")
    saving_ns = run.saving_ns_per_step(run.without())
    assert finding.saving_ns_per_step == pytest.approx(saving_ns, abs=0.05 * run.time_ns / run.num_steps)


def test_cpu_run_ahead_does_not_hide_the_rank_with_the_slow_loader():
    """They fetch all that their workers make, but their devices take longer for it."""
    fault = Fault(kind="slow_loader", cost_ns=24_000_000, ranks=(2,))
    settings = Settings(
        seed=5, num_ranks=4, num_steps=32, num_warmup_steps=6, num_workers=8, reads_loss="never", workers_do="compute"
    )
    run, report = analyze_cached(replace(settings, faults=(fault,)))
    first = report.findings[0]
    assert (first.kind, first.where.ranks, first.confidence) == ("straggler", (2,), "high")
    saving_ns = run.saving_ns_per_step(run.without())
    assert first.saving_ns_per_step == pytest.approx(saving_ns, abs=0.02 * run.time_ns / run.num_steps)


def test_a_rank_with_the_slowest_of_slow_loaders_is_not_named_with_high_confidence():
    """Rank 0 waits for its first batches, too: without the delay of rank 1, it would wait for more of them."""
    fault = Fault(kind="slow_loader", cost_ns=40_917_644)
    settings = Settings(
        seed=3_203_310_230,
        num_ranks=2,
        num_steps=32,
        num_warmup_steps=6,
        step_ns=10_000_000,
        num_workers=4,
        loader_noise=0.538,
        noise=0.06,
        faults=(fault,),
    )
    report = analyze_cached(settings)[1]
    assert "input_bound" in [finding.kind for finding in report.findings]
    assert [one.where.ranks for one in report.findings if one.kind == "straggler" and one.confidence == "high"] == []
