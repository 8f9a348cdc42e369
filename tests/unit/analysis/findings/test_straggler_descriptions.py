"""Ranks that are late together: found, named and replayed as one, also those that hide behind each other."""

from dataclasses import replace

import pytest

import kinetoscope
from trainsim import Fault, Settings, stories
from trainsim.analyses import add_core_load, analyze_cached, write_changed

NODE, SMALL_NODE = (4, 5, 6, 7), (2, 3)


def late(ranks, cost_ms, kind="late_host", every=1, first=0):
    """Return a fault that makes some ranks late in every n-th step."""
    return Fault(kind=kind, ranks=ranks, cost_ns=int(cost_ms * 1e6), every=every, first=first)


def two_nodes(*faults, **settings):
    """Return a run of eight ranks on two hosts."""
    return Settings(num_ranks=8, ranks_per_host=4, faults=faults, **settings)


def two_small_nodes(*faults):
    """Return a run of four ranks on two hosts."""
    return Settings(num_ranks=4, ranks_per_host=2, faults=faults)


GROUPS = {
    "a slow node": (two_nodes(late(NODE, 1.5, "late_device")), NODE),
    "a slow node, short, noisy, without waits for the device": (
        two_nodes(late(NODE, 1.5, "late_device"), num_steps=4, noise=0.1, reads_loss="never", offset_ns=5_000_000),
        NODE,
    ),
    "a node that is a little slower": (two_small_nodes(late(SMALL_NODE, 0.2, "late_device")), SMALL_NODE),
    "a slow node behind long communication": (
        two_small_nodes(late(SMALL_NODE, 1.5, "late_device"), Fault(kind="slow_network", cost_ns=1_000_000)),
        SMALL_NODE,
    ),
    "a host with a slow loop": (two_small_nodes(late(SMALL_NODE, 4)), SMALL_NODE),
    "ranks whose weights are sharded": (
        Settings(num_ranks=4, layout="sharded", faults=(late((2, 3), 2, "late_device"),)),
        (2, 3),
    ),
    "one of tensor parallel ranks": (
        Settings(num_ranks=4, layout="tensor", faults=(late((2,), 2, "late_device"),)),
        (2,),
    ),
    "ranks whose loaders are slow": (Settings(num_ranks=4, faults=(late((1, 3), 6, "slow_loader"),)), (1, 3)),
    "two ranks": (Settings(num_ranks=8, faults=(late((2, 5), 3),)), (2, 5)),
    "six of eight": (Settings(num_ranks=8, faults=(late((0, 1, 2, 3, 4, 5), 3),)), (0, 1, 2, 3, 4, 5)),
    "seven of eight": (Settings(num_ranks=8, faults=(late((0, 1, 2, 3, 4, 5, 6), 3),)), (0, 1, 2, 3, 4, 5, 6)),
    "two that alternate": (
        Settings(num_ranks=4, faults=(late((1,), 4, every=2), late((2,), 4, every=2, first=1))),
        (1, 2),
    ),
    "three in turns": (
        Settings(num_ranks=4, num_steps=12, faults=tuple(late((rank,), 5, every=3, first=rank) for rank in (0, 1, 2))),
        (0, 1, 2),
    ),
    "ranks on the CPU": (Settings(num_ranks=4, has_device=False, faults=(late((0, 2), 3),)), (0, 2)),
}


@pytest.mark.parametrize("name", GROUPS)
def test_stragglers_are_one_finding_with_the_saving_of_a_run_without_them(name):
    settings, ranks = GROUPS[name]
    run, report = analyze_cached(settings)
    found = [finding for finding in report.findings if finding.kind == "straggler"]
    assert [finding.where.ranks for finding in found] == [ranks]
    gone = [index for index, fault in enumerate(settings.faults) if fault.ranks]
    truth, step_ns = run.saving_ns_per_step(run.without(*gone)), run.time_ns / run.num_steps
    assert found[0].saving_ns_per_step == pytest.approx(truth, abs=0.02 * step_ns)
    assert found[0].confidence == ("high" if found[0].saving_ns_per_step > 0.1 * report.run["step_ns"] else "medium")


def test_ranks_that_were_late_before_the_recording_stay_so_by_as_much():
    """Their loops begin to record later than the first, and never catch up: recompilations slow all loops down."""
    late_ones = (late((1,), 2.8), late((2,), 2.8), late((3,), 2.8))
    compiles = Fault(kind="recompilation", cost_ns=6_800_000, every=2)
    settings = Settings(num_ranks=4, num_steps=16, reads_loss="never", faults=(*late_ones, compiles))
    run, report = analyze_cached(settings)
    found = next(finding for finding in report.findings if finding.kind == "straggler")
    truth, step_ns = run.saving_ns_per_step(run.without(0, 1, 2)), run.time_ns / run.num_steps
    assert found.where.ranks == (1, 2, 3)
    assert found.saving_ns_per_step == pytest.approx(truth, abs=0.02 * step_ns)
    other = next(finding for finding in report.findings if finding.kind == "recompilation")
    beyond = run.saving_ns_per_step(run.without()) - truth
    assert other.saving_ns_per_step == pytest.approx(beyond, abs=0.02 * step_ns)


def test_work_of_stragglers_is_no_other_fault():
    for name in ("a slow node", "two ranks", "two that alternate", "ranks whose loaders are slow"):
        _, report = analyze_cached(GROUPS[name][0])
        assert [finding.kind for finding in report.findings] == ["straggler"], name


def test_a_host_is_named_where_all_of_its_ranks_are_late():
    _, report = analyze_cached(GROUPS["a slow node"][0])
    assert report.findings[0].title == ("Stragglers: ranks 4-7 of node1 delay every step by 1.50 ms (slow GPU kernels)")
    assert report.findings[0].advice.startswith("First check what is different on this host. Compare GPU clocks")
    _, report = analyze_cached(GROUPS["two ranks"][0])
    assert report.findings[0].title.startswith("Stragglers: ranks 2, 5 delay every step by ")


def test_alternating_stragglers_are_reported_as_such():
    _, report = analyze_cached(GROUPS["two that alternate"][0])
    assert report.findings[0].title.startswith("Alternating stragglers: ranks 1-2 cost ")
    assert set(report.findings[0].where.steps) >= set(range(4, 13))


def test_a_rank_that_is_late_behind_a_later_one_costs_the_others_nothing():
    settings = Settings(num_ranks=8, faults=(late((2,), 3), late((5,), 1.5)))
    run, report = analyze_cached(settings)
    (found,) = report.findings
    assert found.where.ranks == (2,)
    truth = run.saving_ns_per_step(run.without(0))
    assert found.saving_ns_per_step == pytest.approx(truth, abs=0.02 * run.time_ns / run.num_steps)


def test_much_less_late_rank_is_not_reported_with_the_straggler():
    """Each rank is sometimes late by a little, on hosts with too few cores."""
    little = (late((1,), 11, every=4), late((3,), 9, every=4, first=2))
    run, report = analyze_cached(
        Settings(num_ranks=4, num_steps=16, has_device=False, faults=(late((2,), 30), *little))
    )
    found = report.findings[0]
    assert found.title.startswith("Straggler: rank 2 delays every step by ")
    truth = run.saving_ns_per_step(run.without(0))
    assert found.saving_ns_per_step == pytest.approx(truth, abs=0.02 * run.time_ns / run.num_steps)


@pytest.mark.parametrize(("every", "cores", "process"), [(5, 99, 40), (5, 50, 40), (5, 99, 95), (1, 99, 40)])
def test_a_rank_that_is_late_now_and_then_on_full_cores_may_be_so_by_chance(tmp_path, every, cores, process):
    faults = (late((1,), 20, every=every), *([late((1,), 20, every=7, first=3)] if every > 1 else []))
    settings = Settings(num_ranks=4, num_steps=16, has_device=False, faults=faults)
    run = write_changed(add_core_load(cores, of_process=process), settings, tmp_path)
    found = kinetoscope.analyze(run, cache=False).findings[0]
    is_chance = every > 1 and (cores, process) == (99, 40)
    assert (found.kind, found.confidence) == ("straggler", "medium" if is_chance else "high")
    assert ("its loop may have waited for a core" in found.advice) == is_chance


def test_all_but_one_of_the_alternating_stragglers_are_reported():
    faults = tuple(late((rank,), 5, every=4, first=rank) for rank in range(4))
    run, report = analyze_cached(Settings(num_ranks=4, num_steps=12, faults=faults))
    found = report.findings[0]
    assert (found.kind, len(found.where.ranks)) == ("straggler", 3)
    truth = run.saving_ns_per_step(run.without(*found.where.ranks))
    assert found.saving_ns_per_step == pytest.approx(truth, abs=0.02 * run.time_ns / run.num_steps)


def test_ranks_alternately_waiting_for_data_mean_slow_loaders_and_no_straggler():
    settings = stories.SLOW_DATALOADER_ON_CPU
    _, report = analyze_cached(settings)
    assert [finding.kind for finding in report.findings] == ["input_bound"]


@pytest.mark.parametrize("has_device", [True, False])
def test_two_ranks_that_wait_for_data_alternately_are_not_late(has_device):
    in_turns = (late((0,), 20, "slow_loader", every=2), late((1,), 24, "slow_loader", every=2, first=1))
    _, report = analyze_cached(Settings(num_ranks=2, num_steps=12, has_device=has_device, faults=in_turns))
    assert [finding.kind for finding in report.findings] == ["input_bound"]


def test_rank_that_waits_longer_for_data_is_late():
    _, report = analyze_cached(
        Settings(num_ranks=2, faults=(late((0,), 6, "slow_loader"), late((1,), 9, "slow_loader")))
    )
    assert (report.findings[0].kind, report.findings[0].where.ranks) == ("straggler", (1,))


@pytest.mark.parametrize("num_ranks", [4, 16])
@pytest.mark.parametrize("noise", [0.03, 0.2])
def test_ranks_that_are_late_by_chance_are_no_finding(num_ranks, noise):
    for num_steps in (4, 10):
        _, report = analyze_cached(Settings(num_ranks=num_ranks, num_steps=num_steps, noise=noise, jitter_ns=20_000))
        assert [finding.kind for finding in report.findings if finding.kind == "straggler"] == []


def test_stragglers_have_no_saving_without_a_trusted_replay():
    settings, ranks = GROUPS["a slow node"]
    _, report = analyze_cached(replace(settings, missing_ranks=(0,)))
    found = report.findings[0]
    assert report.graph.why_untrusted
    assert (found.kind, found.where.ranks) == ("straggler", ranks)
    assert (found.confidence, found.saving_ns_per_step) == ("medium", None)


def test_wait_for_a_late_group_is_reported_once():
    _, report = analyze_cached(GROUPS["ranks on the CPU"][0])
    assert report.findings[0].cost_ns_per_step == pytest.approx(3_000_000, rel=0.05)
    assert {row.rank for row in report.stragglers} == {0, 2}


def test_run_that_mostly_waits_for_stragglers_is_bound_by_ranks():
    _, report = analyze_cached(Settings(num_ranks=4, has_device=False, faults=(late((1,), 6),)))
    assert report.run["bound_by"] == "ranks"
    _, report = analyze_cached(Settings(num_ranks=4, has_device=False))
    assert report.run["bound_by"] == "host"
    _, report = analyze_cached(Settings(num_ranks=4, reads_loss="each step", faults=(late((1,), 9),)))
    assert report.run["bound_by"] == "ranks"


def test_ranks_are_late_in_the_steps_in_which_all_of_them_are():
    faults = late((1,), 8), late((2,), 9, every=3), late((2,), 9, every=3, first=1)
    _, report = analyze_cached(Settings(num_ranks=4, reads_loss="each step", faults=faults))
    assert report.findings[0].title.startswith("Stragglers: ranks 1-2 delay 7 of 10 steps by ")


ONCE = {
    "host": late((3,), 30, every=50, first=7),
    "device": late((3,), 6, "late_device", every=50, first=7),
    "data": late((3,), 60, "slow_loader", every=50, first=7),
}


@pytest.mark.parametrize("cause", ONCE)
def test_rank_late_in_one_step_is_the_only_finding(cause):
    run, report = analyze_cached(Settings(num_ranks=4, reads_loss="each step", faults=(ONCE[cause],)))
    (found,) = report.findings
    assert found.title.startswith("Straggler: rank 3 delayed one of 10 steps by ")
    assert (found.kind, found.confidence) == ("straggler", "medium")
    assert (found.where.ranks, found.where.steps, found.period) == ((3,), (7,), None)
    expected = {
        "host": "CPU work that other ranks do not do",
        "device": "Compare GPU clocks",
        "data": "the same `num_workers`",
    }
    assert expected[cause] in found.advice
    truth = run.saving_ns_per_step(run.without())
    assert found.saving_ns_per_step == pytest.approx(truth, abs=0.02 * run.time_ns / run.num_steps)
    assert report.saving_of_fix(1) == pytest.approx(found.saving_ns_per_step, abs=1)


def test_rank_late_in_one_step_has_no_saving_without_a_trusted_replay():
    settings = Settings(num_ranks=4, reads_loss="each step", missing_ranks=(0,), faults=(ONCE["host"],))
    _, report = analyze_cached(settings)
    assert report.graph.why_untrusted
    found = report.findings[0]
    assert found.title.startswith("Straggler: rank 3 delayed one of 10 steps by ")
    assert (found.confidence, found.saving_ns_per_step) == ("medium", None)
    assert found.cost_ns_per_step == pytest.approx(dict(found.evidence)["late_ns"] / 10, rel=0.01)
    _, report = analyze_cached(replace(settings, faults=()))
    assert [finding.kind for finding in report.findings if finding.kind == "straggler"] == []


def test_later_of_two_stragglers_comes_first_without_a_trusted_replay():
    """It was late in one step, and the other by less in two."""
    little = (late((1,), 5, every=50, first=4), late((1,), 5, every=50, first=9))
    much = late((2,), 30, every=50, first=7)
    _, report = analyze_cached(
        Settings(num_ranks=3, reads_loss="each step", missing_ranks=(0,), faults=(*little, much))
    )
    assert report.graph.why_untrusted
    found = [finding.where for finding in report.findings if finding.kind == "straggler"]
    assert [(where.ranks, where.steps) for where in found] == [((2,), (7,)), ((1,), (4, 9))]


def test_rank_late_in_one_step_is_reported_along_with_a_late_group():
    faults = (late((1, 2), 4), late((5,), 12, every=50, first=7))
    run, report = analyze_cached(Settings(num_ranks=8, faults=faults))
    assert [(found.where.ranks, found.confidence) for found in report.findings] == [((1, 2), "high"), ((5,), "medium")]
    little = 0.02 * run.time_ns / run.num_steps
    for index, found in enumerate(report.findings):
        assert found.saving_ns_per_step == pytest.approx(run.saving_ns_per_step(run.without(index)), abs=little)
        assert report.saving_of_fix(index + 1) == pytest.approx(found.saving_ns_per_step, abs=1)


def test_two_late_groups_each_get_their_own_cause():
    slow_loops, slow_devices = late((1, 2), 4), late((5, 6), 1.5, "late_device")
    run, report = analyze_cached(two_nodes(slow_loops, slow_devices))
    found = report.findings[0]
    assert found.where.ranks == (1, 2, 5, 6)
    assert "Ranks 1-2: Find CPU work" in found.advice
    assert "Ranks 5-6: Compare GPU clocks" in found.advice
    truth = run.saving_ns_per_step(run.without())
    assert found.saving_ns_per_step == pytest.approx(truth, abs=0.02 * run.time_ns / run.num_steps)


def test_loaders_that_limit_the_run_without_stragglers_make_an_interval():
    """The loaders of all ranks make a batch in a little less time than a step takes with the late rank."""
    faults = (late((1,), 4), Fault(kind="slow_loader", cost_ns=5_000_000))
    settings = Settings(num_ranks=4, num_steps=14, num_warmup_steps=10, faults=faults, workers_do="compute")
    run, report = analyze_cached(settings)
    found, truth = report.findings[0], run.saving_ns_per_step(run.without(0))
    assert truth < run.saving_ns_per_step(run.without()) - 0.05 * report.run["step_ns"]
    assert found.where.ranks == (1,)
    assert found.saving_ns_per_step < truth < dict(found.evidence)["max_saving_ns"]
    assert "After that the DataLoader limits the loop" in found.advice


def test_trace_without_a_rank_has_no_straggler(tmp_path):
    def without_rank(trace):
        del trace["distributedInfo"]

    settings = Settings(num_ranks=1, num_steps=4)
    report = kinetoscope.analyze(write_changed(without_rank, settings, tmp_path), cache=False)
    assert [finding for finding in report.findings if finding.kind == "straggler"] == []
