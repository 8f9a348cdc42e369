"""What analyses find in simulated runs is what the simulator knows to be true, to the nanosecond."""

from collections import Counter

import pytest

import kinetoscope
from kinetoscope.analysis.replay import Change
from simulated_training import Fault, Settings, random_settings, simulate

SEEDS = range(16)
CAUSES = ("sync", "launch", "transfer", "python", "gc", "compile")


@pytest.fixture(scope="module")
def analysed(tmp_path_factory):
    """Runs of many shapes, each with the report on its traces."""
    return [analyse(random_settings(seed), tmp_path_factory.mktemp("traces")) for seed in SEEDS]


def analyse(settings, folder):
    run = simulate(settings)
    run.write(folder)
    return run, kinetoscope.analyze(folder, cache=False)


def differences(found, truth):
    """Fields of rows by key that are not as they are in truth; a 0 that nobody can know may be None."""
    assert found.keys() == truth.keys()
    return [
        (key, name, found[key][name], value)
        for key, row in truth.items()
        for name, value in row.items()
        if name in found[key] and found[key][name] != value and (found[key][name], value) != (None, 0)
    ]


def test_the_time_of_each_device_is_shared_out(analysed):
    for run, report in analysed:
        found = {(row.rank, row.device): row.to_dict() for row in report.ranks}
        truth = {(row["rank"], row["device"]): row for row in run.truth.ranks}
        assert differences(found, truth) == []


def test_the_time_of_each_step_is_shared_out(analysed):
    for run, report in analysed:
        found = {(row.rank, row.step): row.to_dict() for row in report.steps}
        truth = {(row["rank"], row["step"]): row | {"begin_ns": None} for row in run.truth.steps}
        for row in found.values():
            row["begin_ns"] = None  # on the clock of its rank, whose offset the analysis cannot know
        assert differences(found, truth) == []


def test_operators_and_kernels_are_counted_and_timed(analysed):
    for run, report in analysed:
        operators = {(row.name, row.shapes or ""): row.to_dict() for row in report.operators}
        assert differences(operators, run.truth.operators) == []
        kernels = {row.name: row.to_dict() for row in report.kernels}
        assert differences(kernels, run.truth.kernels) == []


def test_calls_of_several_ranks_are_joined(analysed):
    for run, report in analysed:
        if run.settings.layout == "pipeline" and not run.settings.has_sequence:
            continue  # without a number, sends and receives in flight cannot be told apart
        known = [call for call in run.truth.collectives if call["step"] is not None]
        truth = Counter((call["step"], call["num_ranks"], call["sequence"]) for call in known)
        found = Counter((row.step, row.num_ranks, row.sequence) for row in report.collectives if row.step is not None)
        assert found == truth


def test_waits_for_the_last_rank_are_found_though_clocks_are_apart(tmp_path):
    late = Fault(kind="late_host", ranks=(1,), cost_ns=2_000_000, every=2)
    run, report = analyse(Settings(num_ranks=4, offset_ns=5_000_000, faults=(late,)), tmp_path)
    truth = sorted(
        (call["step"], call["skew_ns"], call["transfer_ns"]) for call in run.truth.collectives if call["step"]
    )
    assert sorted((row.step, row.skew_ns, row.transfer_ns) for row in report.collectives if row.step) == truth


def test_a_replay_without_a_change_reproduces_every_moment(analysed):
    for _, report in analysed:
        assert report.graph.replay().equals(report.graph.nodes["time"])


@pytest.mark.parametrize("cause", CAUSES)
def test_a_replay_without_something_takes_as_long_as_the_run_without_it(cause, tmp_path):
    settings = Settings(
        seed=3,
        num_ranks=2,
        num_steps=12,
        reads_loss="each step",
        faults=(
            Fault(kind="gc", cost_ns=900_000, every=4),
            Fault(kind="recompilation", cost_ns=2_000_000, every=5),
            Fault(kind="slow_network", cost_ns=300_000),
        ),
    )
    run, report = analyse(settings, tmp_path)
    truth = run.saving_ns_per_step(run.with_ideal(cause))
    assert report.saving_ns_per_step(Change(frozenset([cause]))) == pytest.approx(
        truth, rel=0.02, abs=0.002 * run.time_ns / 12
    )


@pytest.mark.parametrize(("kind", "cause"), [("late_host", "host"), ("late_device", "device")])
def test_a_rank_that_is_late_is_named_with_its_cause_and_period(kind, cause, tmp_path):
    late = Fault(kind=kind, ranks=(2,), cost_ns=3_000_000, every=3)
    _, report = analyse(Settings(num_ranks=4, num_steps=12, offset_ns=5_000_000, faults=(late,)), tmp_path)
    assert [(row.rank, row.cause, row.period) for row in report.stragglers] == [(2, cause, 3)]
