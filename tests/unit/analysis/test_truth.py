"""Analyses of simulated runs equal the simulator's truth, to the nanosecond."""

import os
from collections import Counter
from dataclasses import replace

import pytest

from kinetoscope.analysis.replay.replay import Change
from kinetoscope.analysis.windows.call_statistics import MAX_EXACT_CALLS
from trainsim import START_NS, Fault, Settings, random_settings
from trainsim.analyses import analyze_cached, measured

SEEDS = range(int(os.environ.get("KINETOSCOPE_RANDOM_RUNS", "8")))
RUNS_OF_RANKS = [seed for seed in SEEDS if random_settings(seed).num_ranks > 1][: max(4, len(SEEDS) // 4)]
CAUSES = ("sync", "launch", "transfer", "python", "gc", "compile")
NAMES = {"allreduce": "all_reduce", "_allgather_base": "all_gather", "_reduce_scatter_base": "reduce_scatter"}


@pytest.fixture(scope="module", params=SEEDS, ids=lambda seed: f"seed {seed}")
def any_run(request):
    """A run of any shape, with the report on its traces."""
    return analyze_cached(random_settings(request.param))


def differences(found, truth):
    """Return the fields of rows by key that differ from the truth; an unknowable 0 may be None."""
    assert found.keys() == truth.keys()
    return [
        (key, name, found[key][name], value)
        for key, row in truth.items()
        for name, value in row.items()
        if name in found[key] and not is_same(name, found[key][name], value, row)
    ]


def is_same(name, found, value, row):
    """Quantiles of very many calls in a window are kept to 0.4 %."""
    num_calls = row["name_num_calls"] if name.startswith("name_") else row.get("num_calls", 0)
    if name.endswith(("p50_ns", "p95_ns")) and num_calls > MAX_EXACT_CALLS:
        return found == pytest.approx(value, rel=0.004)
    return found == value or (found, value) == (None, 0)


def test_the_time_of_each_device_is_shared_out(any_run):
    run, report = any_run
    found = {(row.rank, row.device): row.to_dict() for row in report.ranks}
    truth = {(row["rank"], row["device"]): row for row in run.truth.ranks}
    assert differences(found, truth) == []


def test_the_time_of_each_step_is_shared_out(any_run):
    run, report = any_run
    found = {(row.rank, row.step): row.to_dict() for row in report.steps}
    truth = {(row["rank"], row["step"]): row for row in run.truth.steps}
    if not has_one_clock(run):
        found, truth = ({key: row | {"begin_ns": None} for key, row in rows.items()} for rows in (found, truth))
    assert differences(found, truth) == []


def test_memory_at_its_peak_is_shared_out_to_what_allocated_it(any_run):
    run, report = any_run
    fields = ("rank", "device", "peak_bytes", "peak_step", "by_category")
    found = [row.to_dict() for row in report.memory]
    assert [[row[name] for name in fields] for row in found] == [
        [row[name] for name in fields] for row in run.truth.memory
    ]
    assert [sum(row["by_category"].values()) for row in found] == [row["peak_bytes"] for row in found]


def test_operators_are_counted_and_timed(any_run):
    run, report = any_run
    found = {(row.name, row.shapes or ""): row.to_dict() for row in report.operators}
    assert differences(found, run.truth.operators) == []


def test_kernels_are_counted_and_timed(any_run):
    run, report = any_run
    assert differences({row.name: row.to_dict() for row in report.kernels}, run.truth.kernels) == []


def test_collectives_are_joined_and_timed(any_run):
    run, report = any_run
    found = Counter(found_call(row, with_times=has_one_clock(run)) for row in report.collectives)
    known = [call for call in run.truth.collectives if not call["num_unnamed"]]
    truth = Counter(true_call(call, with_times=has_one_clock(run)) for call in known)
    assert truth - found == Counter()
    if len(known) == len(run.truth.collectives):  # a call that no trace names may be found in part
        assert found == truth


@pytest.mark.parametrize("seed", RUNS_OF_RANKS)
def test_collectives_with_jittered_ends_are_timed_to_one_percent_of_a_step(seed):
    settings = replace(random_settings(seed), has_kernel_args=True, jitter_ns=2_000, offset_ns=5_000_000)
    run, report = measured(settings)
    truth = sorted((true_call(call, with_times=True) for call in run.truth.collectives), key=str)
    found = sorted((found_call(row, with_times=True) for row in report.collectives), key=str)
    assert [call[:-1] for call in found] == [call[:-1] for call in truth]
    if has_one_clock(run):
        for (*_, times), (*_, true_times) in zip(found, truth, strict=True):
            for moments, true_moments in zip(times[:2], true_times[:2], strict=True):
                apart_ns = [abs(one - other) for one, other in zip(moments, true_moments, strict=True)]
                assert max(apart_ns) <= settings.step_ns / 100


def has_one_clock(run):
    """Return whether calls that end together determine the offsets of all ranks' clocks."""
    settings = run.settings
    is_apart = settings.layout == "pipeline" or (settings.layout == "tensor" and settings.missing_ranks)
    return not settings.offset_ns or not is_apart


def found_call(row, *, with_times):
    times = (row.starts_ns, row.ends_ns, row.skew_ns, row.transfer_ns, row.late_rank, row.bandwidth_bytes_per_s)
    return (row.group, row.sequence, row.step, row.name, row.bytes, row.ranks, times if with_times else None)


def true_call(call, *, with_times):
    name, ranks = NAMES.get(call["name"], call["name"]), tuple(sorted(call["starts_ns"]))
    starts, ends = (tuple(START_NS + call[field][rank] for rank in ranks) for field in ("starts_ns", "ends_ns"))
    is_timed = len(ranks) > 1
    waits = tuple(
        call[field] if is_timed else None for field in ("skew_ns", "transfer_ns", "late_rank", "bandwidth_bytes_per_s")
    )
    times = (starts, ends, *waits) if with_times else None
    return (call["group"], call["sequence"], call["step"], name, call["bytes"], ranks, times)


def test_times_of_a_device_add_up_to_what_was_recorded(any_run):
    _, report = any_run
    for row in report.ranks:
        if row.window_ns is not None:
            assert row.busy_ns + row.idle_ns == row.window_ns
            assert row.compute_ns + row.exposed_communication_ns + row.exposed_copy_ns == row.busy_ns
            assert row.idle_host_wait_ns + row.idle_kernel_wait_ns + row.idle_other_ns == row.idle_ns


def test_times_of_steps_add_up_to_what_was_recorded(any_run):
    run, report = any_run
    is_waiting_outside = run.settings.step_spans != "ProfilerStep"
    for rank, cycles_ns in run.truth.cycles_ns.items():
        rows = [row for row in report.steps if row.rank == rank]
        firsts = [row for row in rows if row.step - 1 not in {other.step for other in rows}]
        waits = sum(row.data_wait_ns for row in rows if row not in firsts) if is_waiting_outside else 0
        total = sum(row.duration_ns + (row.between_ns or 0) + (row.evaluation_ns or 0) for row in rows) + waits
        assert total == sum(cycles_ns)


def test_waits_for_the_last_rank_are_found_though_clocks_are_apart():
    late = Fault(kind="late_host", ranks=(1,), cost_ns=2_000_000, every=2)
    run, report = measured(Settings(num_ranks=3, offset_ns=5_000_000, faults=(late,)))
    truth = sorted(
        (call["step"], call["skew_ns"], call["transfer_ns"]) for call in run.truth.collectives if call["step"]
    )
    assert sorted((row.step, row.skew_ns, row.transfer_ns) for row in report.collectives if row.step) == truth


def test_a_replay_without_a_change_reproduces_every_moment(any_run):
    _, report = any_run
    assert report.graph.replay().equals(report.graph.nodes["time"])


@pytest.mark.parametrize("cause", CAUSES)
def test_a_replay_without_something_takes_as_long_as_the_run_without_it(cause):
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
    run, report = analyze_cached(settings)
    truth = run.saving_ns_per_step(run.with_ideal(cause))
    assert report.saving_ns_per_step(Change(frozenset([cause]))) == pytest.approx(
        truth, rel=0.02, abs=0.002 * run.time_ns / 12
    )


@pytest.mark.parametrize(("kind", "cause"), [("late_host", "host"), ("late_device", "device")])
def test_a_rank_that_is_late_is_named_with_its_cause_and_period(kind, cause):
    late = Fault(kind=kind, ranks=(2,), cost_ns=3_000_000, every=3)
    _, report = measured(Settings(num_ranks=3, num_steps=12, offset_ns=5_000_000, faults=(late,)))
    assert [(row.rank, row.cause, row.period) for row in report.stragglers] == [(2, cause, 3)]
