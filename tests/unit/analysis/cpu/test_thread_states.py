"""Running, blocked, or waiting for a CPU: the findings on these states, in simulated runs."""

import json
from dataclasses import replace

import pytest

import kinetoscope
from kinetoscope.analysis.findings.straggler_groups import find_ranks_late_once
from kinetoscope.analysis.steps.steps import StepRow
from trainsim import Fault, Settings, simulate
from trainsim.analyses import analyze_cached, write_changed

CPU = Settings(num_ranks=1, has_device=False, has_states=True, step_spans="both", num_steps=12)
WAIT = Fault(kind="blocked", cost_ns=4_000_000)
PREEMPTED = Fault(kind="preempted", cost_ns=2_000_000)
LOOP_OF_ELEMENTS = Fault(kind="slow_python", cost_ns=800_000)


def report_on(*faults, **settings):
    return analyze_cached(replace(CPU, faults=faults, **settings))[1]


def report_with(instants, folder, *faults, **settings):
    """Return the report on a run with these args of the note ``processors``."""
    for path in simulate(replace(CPU, faults=faults, **settings)).write(folder):
        trace = json.loads(path.read_text(encoding="utf-8"))
        trace["traceEvents"] = [event for event in trace["traceEvents"] if event.get("cat") != "processors"]
        end = max(event["ts"] for event in trace["traceEvents"] if "ts" in event)
        instant = {"name": "processors", "cat": "processors", "ph": "i", "s": "t", "pid": 4000, "tid": 4000, "ts": end}
        trace["traceEvents"].append(instant | {"args": instants})
        path.write_text(json.dumps(trace), encoding="utf-8")
    return kinetoscope.analyze(folder, cache=False)


def kinds(report):
    return [finding.kind for finding in report.findings]


def found(report, kind):
    return next(finding for finding in report.findings if finding.kind == kind)


# -- steps


def test_step_has_blocked_time_and_run_queue_delay_of_its_thread():
    for row in report_on(WAIT, PREEMPTED).steps[1:]:
        assert row.blocked_ns == pytest.approx(4_000_000, rel=0.02)
        assert row.starved_ns == pytest.approx(2_000_000, rel=0.02)
        assert row.running_ns > 0


def test_without_a_sampler_nothing_is_known_of_that():
    rows = report_on(has_states=False).steps
    assert {(row.running_ns, row.blocked_ns, row.starved_ns) for row in rows} == {(None, None, None)}


def test_less_than_two_percent_of_a_step_is_nothing():
    rows = report_on(Fault(kind="preempted", cost_ns=20_000)).steps
    assert {row.starved_ns for row in rows} == {0}


# -- blocked


def test_a_wait_is_blocked_and_no_overhead_of_python():
    report = report_on(WAIT)
    first = report.findings[0]
    assert (first.kind, first.confidence) == ("blocked", "high")
    assert "fsync" in first.title
    assert first.where.lines[0] == "train.py:21"
    assert "python_overhead" not in kinds(report)


def test_python_that_runs_is_overhead_and_nothing_blocked():
    report = report_on(LOOP_OF_ELEMENTS)
    assert kinds(report)[0] == "python_overhead"
    assert "blocked" not in kinds(report)


def test_python_that_is_blocked_half_of_the_time_is_half_overhead():
    report = report_on(LOOP_OF_ELEMENTS, Fault(kind="blocked", cost_ns=8_000_000))
    assert set(kinds(report)[:2]) == {"python_overhead", "blocked"}
    assert found(report, "blocked").cost_ns_per_step == pytest.approx(8_000_000, rel=0.05)


def test_the_advice_is_that_of_the_call():
    assert "`os.fsync()` returns only after the disk has written" in found(report_on(WAIT), "blocked").advice


def test_short_gaps_between_operators_are_not_blocked_where_no_stack_was_sampled(tmp_path):
    """The thread may as well wait within an operator, for the threads that compute it."""

    def change(trace):
        for event in trace["traceEvents"]:
            if event.get("name") == "loop thread":
                event["args"]["blocked_ns"] += event["args"]["running_ns"] - 1_000
                event["args"]["running_ns"] = 1_000
        trace["traceEvents"] = [one for one in trace["traceEvents"] if "stack_sample" not in one.get("cat", "")]

    report = kinetoscope.analyze(write_changed(change, CPU, tmp_path), cache=False)
    assert "blocked" not in kinds(report)


def test_clocks_give_the_wait_of_the_loop_without_sampled_stacks(tmp_path):
    for path in simulate(replace(CPU, faults=(WAIT,))).write(tmp_path):
        trace = json.loads(path.read_text(encoding="utf-8"))
        events = [event for event in trace["traceEvents"] if "stack_sample" not in event.get("cat", "")]
        path.write_text(json.dumps(trace | {"traceEvents": events}), encoding="utf-8")
    blocked = found(kinetoscope.analyze(tmp_path, cache=False), "blocked")
    assert blocked.cost_ns_per_step == pytest.approx(4_000_000, rel=0.02)


# -- waiting for a CPU


def test_descheduled_thread_is_no_certain_python_overhead():
    """Its clock does not say where in a batch that was."""
    report = report_on(PREEMPTED)
    first = report.findings[0]
    assert (first.kind, first.confidence) == ("processor_contention", "high")
    assert first.cost_ns_per_step == pytest.approx(2_000_000, rel=0.05)
    assert first.saving_ns_per_step is None
    assert "blocked" not in kinds(report)
    assert [finding.confidence for finding in report.findings].count("high") == 1


def test_python_time_between_operators_excludes_run_queue_delay():
    quiet, busy = (found(report_on(LOOP_OF_ELEMENTS, *more), "python_overhead") for more in ((), (PREEMPTED,)))
    assert busy.cost_ns_per_step == pytest.approx(quiet.cost_ns_per_step, rel=0.05)


def test_batches_built_in_the_loop_save_the_same_next_to_another_delay():
    slow = Fault(kind="slow_loader", cost_ns=3_000_000)
    delayed = replace(PREEMPTED, cost_ns=12_000_000)
    quiet, busy = (found(report_on(slow, *more, num_workers=0), "input_bound") for more in ((), (delayed,)))
    assert quiet.saving_ns_per_step > 2_900_000
    assert busy.saving_ns_per_step == pytest.approx(quiet.saving_ns_per_step, rel=0.02)


def test_time_slices_of_others_within_fetches_are_not_saved_by_a_fix_of_the_loader(tmp_path):
    """Fetches of 1 ms; every fifth is 18 ms longer, since the loop waits for a CPU."""
    slice_ns = 18_000_000
    slow = Fault(kind="slow_loader", cost_ns=1_000_000)
    settings = replace(CPU, num_workers=0, faults=(slow, replace(slow, cost_ns=slice_ns, every=5)))

    def change(trace):
        for event in trace["traceEvents"]:
            if event.get("name") == "loop thread" and event["args"]["running_ns"] > slice_ns:
                event["args"]["running_ns"] -= slice_ns
                event["args"]["starved_ns"] += slice_ns

    report = kinetoscope.analyze(write_changed(change, settings, tmp_path), cache=False)
    alone = found(report_on(slow, num_workers=0), "input_bound")
    assert found(report, "input_bound").saving_ns_per_step < 1.7 * alone.saving_ns_per_step


@pytest.mark.parametrize("fault", [Fault(kind="gc", cost_ns=20_000), Fault(kind="blocked", cost_ns=60_000)])
def test_negligible_costs_are_no_finding_even_under_cpu_contention(fault):
    assert set(kinds(report_on(PREEMPTED, fault))) == {"processor_contention", "python_overhead"}


def test_rank_sometimes_late_under_cpu_contention_is_within_noise():
    at_random = [
        Fault(kind="preempted", cost_ns=30_000_000, ranks=(1,), every=5),
        Fault(kind="preempted", cost_ns=30_000_000, ranks=(1,), every=7, first=3),
    ]
    chance = found(report_on(Fault(kind="preempted", cost_ns=8_000_000), *at_random, num_ranks=2), "straggler")
    always = found(report_on(replace(PREEMPTED, cost_ns=8_000_000, ranks=(1,)), num_ranks=2), "straggler")
    assert (chance.where.ranks, chance.confidence) == ((1,), "medium")
    assert (always.where.ranks, always.confidence) == ((1,), "high")


@pytest.mark.parametrize("num_late", [1, 2])
def test_rank_with_more_run_queue_delay_than_others_is_late_because_of_it(num_late):
    late = replace(PREEMPTED, cost_ns=8_000_000, ranks=(1, 2)[:num_late])
    report = report_on(late, num_ranks=4)
    assert [row.cause for row in report.stragglers] == ["processor"] * num_late
    straggler = found(report, "straggler")
    assert "waited longer for a CPU than on other ranks" in straggler.advice
    assert dict(straggler.evidence)["processor_longer_ns"] == pytest.approx(8_000_000, rel=0.05)
    unknown = found(report_on(late, num_ranks=4, has_states=False), "straggler")
    assert "waited longer for a CPU" not in unknown.advice
    assert "processor_longer_ns" not in dict(unknown.evidence)


def test_rank_with_more_work_and_more_cpu_contention_is_late_for_its_work():
    more = Fault(kind="late_host", cost_ns=6_000_000, ranks=(1,))
    report = report_on(more, replace(PREEMPTED, cost_ns=6_000_000, ranks=(1,)), num_ranks=2)
    assert [row.cause for row in report.stragglers] == ["host"]
    late_in_one = replace(PREEMPTED, cost_ns=90_000_000, ranks=(1,), every=50, first=7)
    assert "waited longer for a CPU" in found(report_on(late_in_one, num_ranks=4), "straggler").advice


@pytest.mark.parametrize(("starved_of_other_ns", "cause"), [(0, "processor"), (None, "unknown")])
def test_unknown_values_of_other_ranks_are_no_difference(starved_of_other_ns, cause):
    """One rank was late in a single step, while it was descheduled."""
    starved = {(0, 3): 900_000_000, (1, 3): starved_of_other_ns}
    places = [(rank, step) for rank in (0, 1) for step in range(4)]
    steps = [
        StepRow(rank=rank, step=step, begin_ns=0, duration_ns=10, starved_ns=starved.get((rank, step)))
        for rank, step in places
    ]
    late_ns = {rank: {step: 1e9 if (rank, step) == (0, 3) else 0.0 for step in range(4)} for rank in (0, 1)}
    (row,) = find_ranks_late_once(late_ns, steps, 1.0)
    assert (row.rank, row.cause) == (0, cause)


def test_other_findings_have_less_confidence_under_cpu_contention():
    quiet, busy = (report_on(LOOP_OF_ELEMENTS, *more) for more in ((), (Fault(kind="preempted", cost_ns=20_000_000),)))
    assert found(quiet, "python_overhead").confidence == "high"
    assert found(busy, "python_overhead").confidence == "medium"


SECOND = 1_000_000_000
USED = {"wall_ns": SECOND, "cores": 2, "threads": 8, "steal_ns": 0, "throttled_ns": 0, "num_throttled": 0}
NEIGHBOURS = {"own_ns": SECOND // 2, "busy_ns": 2 * SECOND}


@pytest.mark.parametrize(
    ("used", "title", "advice"),
    [
        ({"own_ns": 2 * SECOND, "busy_ns": 2 * SECOND}, "1 rank x 8 threads share 2 cores", "OMP_NUM_THREADS"),
        (
            {"own_ns": 2 * SECOND, "busy_ns": 2 * SECOND, "threads": 1},
            "this job's processes and threads share 2 cores",
            "pass a smaller `num_workers`",
        ),
        (
            {"own_ns": SECOND // 2, "command_ns": 2 * SECOND, "busy_ns": 2 * SECOND, "threads": 1},
            "this job's processes and threads share 2 cores",
            "This job used 100 % of the CPU time, other processes 0 %",
        ),
        (
            {"own_ns": SECOND, "throttled_ns": SECOND // 2, "num_throttled": 9},
            "the container's CPU limit",
            "limits.cpu",
        ),
    ],
)
def test_contention_by_the_jobs_own_threads_or_its_limit_is_a_finding(used, title, advice, tmp_path):
    report = report_with(USED | used, tmp_path, PREEMPTED)
    contention = found(report, "processor_contention")
    assert contention.title.startswith(f"CPU contention: {title}")
    assert contention.title.endswith(", 2.0 ms/step")
    assert advice in contention.advice
    assert not [note for note in report.run["notes"] if note.startswith("CPU contention")]


@pytest.mark.parametrize(
    ("used", "sentence", "percents"),
    [
        (NEIGHBOURS, "This job used 25 % of the CPU time, other processes 75 %. Move other", (25, 75, 0)),
        ({"own_ns": SECOND, "busy_ns": 2 * SECOND}, "This job used 50 % of the CPU time, other", (50, 50, 0)),
        (NEIGHBOURS | {"busy_ns": 2 * SECOND + SECOND // 20}, "other processes 75 %", (25, 75, 0)),
        (
            {"own_ns": SECOND, "busy_ns": SECOND, "steal_ns": SECOND // 5},
            "other guests of its host took 10 %. Ask for CPUs that are not shared.",
            (50, 0, 10),
        ),
        (NEIGHBOURS | {"wall_ns": SECOND // 100, "own_ns": SECOND // 200}, "does not show who used", (25, None, None)),
        ({"wall_ns": 0, "own_ns": -1, "cores": "two", "busy_ns": 10**30}, "does not show who used", (None, None, None)),
    ],
)
def test_contention_by_others_or_by_unknown_processes_is_a_note_and_no_finding(used, sentence, percents, tmp_path):
    report = report_with(USED | used, tmp_path, replace(PREEMPTED, cost_ns=8_000_000))
    assert "processor_contention" not in kinds(report)
    contention = report.run["contention"]
    assert tuple(contention[f"{owner}_percent"] for owner in ("own", "others", "steal")) == percents
    note = next(note for note in report.run["notes"] if note.startswith("CPU contention"))
    assert sentence in note
    assert f"ran {contention['slowdown']:.1f} times slower" in note


def test_the_slowdown_is_the_wall_time_divided_by_the_wall_time_less_the_delay(tmp_path):
    report = report_with(USED | NEIGHBOURS, tmp_path, PREEMPTED)
    rows = report.steps
    wall_ns = sum(row.running_ns + row.blocked_ns + row.starved_ns for row in rows)
    delay_ns = sum(row.starved_ns for row in rows)
    assert report.run["contention"]["slowdown"] == pytest.approx(wall_ns / (wall_ns - delay_ns), abs=0.001)
    assert delay_ns == pytest.approx(len(rows) * 2_000_000, rel=0.05)


def test_a_quiet_machine_has_no_note_and_an_unrecorded_one_no_contention():
    quiet, running_without_operators = report_on(), report_on(has_states=False)
    assert quiet.run["contention"]["slowdown"] == 1
    assert running_without_operators.run["contention"] is None
    assert not [
        note for report in (quiet, running_without_operators) for note in report.run["notes"] if "contention" in note
    ]


@pytest.mark.parametrize(("num_slices", "is_finding"), [(0, False), (1, False), (2, False), (3, True)])
def test_a_gap_of_python_that_is_long_in_one_or_two_steps_is_no_pattern(num_slices, is_finding):
    """Where the system reports no delay, a time slice of another program looks like Python that runs for long."""
    gap, slice_ns = Fault(kind="late_host", cost_ns=200_000), 18_000_000
    slices = [replace(gap, cost_ns=slice_ns, every=100, first=3 * number + 4) for number in range(num_slices)]
    report = report_on(gap, *slices, has_states=False)
    costs_ns = [finding.cost_ns_per_step for finding in report.findings if finding.kind == "python_overhead"]
    assert any(cost_ns >= slice_ns / 12 for cost_ns in costs_ns) == is_finding


# -- without operators


def test_only_the_hot_line_is_reported_for_python_without_operators():
    report = report_on(has_torch=False, step_spans="event/batch")
    assert kinds(report) == ["hot_line"]
    hot = report.findings[0]
    assert hot.where.lines == ("train.py:26",)
    assert hot.saving_ns_per_step is None
    assert hot.confidence != "high"


def test_nothing_is_reported_without_operators_and_samples():
    assert kinds(report_on(has_torch=False, step_spans="event/batch", has_states=False)) == []


def test_without_operators_a_wait_is_named_but_not_for_sure():
    report = report_on(WAIT, has_torch=False, step_spans="event/batch")
    blocked = found(report, "blocked")
    assert blocked.where.lines[0] == "train.py:21"
    assert blocked.saving_ns_per_step is None
    assert blocked.confidence == "medium"


# -- workers

SLOW_LOADER = Fault(kind="slow_loader", cost_ns=12_000_000)


def with_busy_cores(trace):
    """Readings of the counter ``cpu``: all cores are busy."""
    times = sorted(event["ts"] for event in trace["traceEvents"] if event.get("name") == "loop thread")
    counter = {"name": "cpu", "cat": "system", "ph": "C", "pid": 4000, "tid": 4000}
    trace["traceEvents"] += [counter | {"ts": at, "args": {"percent": 100.0}} for at in times]


def input_bound_of(workers_do, folder, change=with_busy_cores):
    for path in simulate(replace(CPU, faults=(SLOW_LOADER,), workers_do=workers_do)).write(folder):
        trace = json.loads(path.read_text(encoding="utf-8"))
        change(trace)
        path.write_text(json.dumps(trace), encoding="utf-8")
    return found(kinetoscope.analyze(folder, cache=False), "input_bound")


def test_more_workers_help_on_busy_cores_where_workers_wait(tmp_path):
    finding = input_bound_of("wait", tmp_path)
    assert "num_workers=5, persistent_workers=True" in finding.advice
    assert "even where cores are busy" in finding.advice
    assert dict(finding.evidence)["batch_wait_share"] > 0.9


def test_more_workers_do_not_help_on_busy_cores_where_workers_compute(tmp_path):
    finding = input_bound_of("compute", tmp_path)
    assert "more workers would not help" in finding.advice


@pytest.mark.parametrize("state", ["GIL", "GIL, decoder ran"])
def test_more_workers_do_not_help_on_busy_cores_where_another_thread_has_the_gil(tmp_path, state):
    def for_the_gil(trace):
        with_busy_cores(trace)
        for event in trace["traceEvents"]:
            if event["name"] == "waits: sleep":
                event["name"] = f"waits: {state}"

    finding = input_bound_of("wait", tmp_path, for_the_gil)
    assert "more workers would not help" in finding.advice
    assert dict(finding.evidence)["batch_wait_share"] < 0.1


def test_the_first_reading_and_few_readings_of_the_cores_say_nothing(tmp_path):
    def few(trace):
        with_busy_cores(trace)
        readings = [event for event in trace["traceEvents"] if event["name"] == "cpu"]
        readings[0]["args"]["percent"] = 0.0
        for reading in readings[3:]:
            trace["traceEvents"].remove(reading)

    finding = input_bound_of("nothing", tmp_path, few)
    assert "cpu_percent" not in dict(finding.evidence)
    assert "cores were" not in finding.advice


def test_a_first_reading_of_nothing_is_not_in_the_mean(tmp_path):
    def after_nothing(trace):
        with_busy_cores(trace)
        next(event for event in trace["traceEvents"] if event["name"] == "cpu")["args"]["percent"] = 0.0

    finding = input_bound_of("nothing", tmp_path, after_nothing)
    assert dict(finding.evidence)["cpu_percent"] == 100.0


def test_sampler_notes_include_cpu_use_of_the_cores(tmp_path):
    """A window that is too short for samples has it. The system counts in ticks: one too many is not reported."""
    report = report_with(
        USED | {"own_ns": SECOND, "busy_ns": 2 * SECOND + SECOND // 20}, tmp_path, SLOW_LOADER, workers_do="compute"
    )
    finding = found(report, "input_bound")
    assert dict(finding.evidence)["cpu_percent"] == 100.0
    assert "more workers would not help" in finding.advice


@pytest.mark.parametrize(("contention_by", "confidence"), [("other programs", "medium"), ("this job", "high")])
def test_transfers_on_cpus_that_others_use_are_not_sure(tmp_path, contention_by, confidence):
    """The threads of a backend on the CPU wait for a CPU as well, and it is not recorded how long."""
    slow = Fault(kind="slow_network", cost_ns=2_000_000)
    faults = (slow, replace(PREEMPTED, cost_ns=150_000))
    settings = {"num_ranks": 2, "num_steps": 40, "contention_by": contention_by, "faults": faults}
    simulate(replace(CPU, **settings)).write(tmp_path)
    report = kinetoscope.analyze(tmp_path, cache=False)
    assert found(report, "exposed_communication").confidence == confidence
