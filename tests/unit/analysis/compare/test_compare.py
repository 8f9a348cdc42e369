"""analysis/compare/compare.py: what two runs differ by, and what only differs by chance."""

import json
import math
import os
import random
from dataclasses import fields, replace

import pytest

import kinetoscope
from kinetoscope.analysis.analyze import RunReport
from kinetoscope.analysis.compare.compare import compare_reports
from kinetoscope.analysis.cpu.operators import OperatorRow
from kinetoscope.analysis.steps.call_times_by_step import StepTimes
from kinetoscope.analysis.steps.steps import StepRow
from kinetoscope.report.comparison import describe_comparison
from trainsim import Fault, Settings, healthy_settings, planted_settings, simulate
from trainsim.analyses import analyze_cached

NUM_COMPARISONS = int(os.environ.get("KINETOSCOPE_COMPARISONS", "2"))
MS = 1_000_000


def report(step_ms, *, ranks=(0,), operators=None, calls=None, shapes=None, peak_bytes=(), num_steps=None, **phases_ms):
    """Return a report on steps of these lengths. Operators and phases are a list of milliseconds, or one number;
    ``calls`` says of operators how often a step calls them."""
    num_steps = num_steps or len(step_ms)
    begins = [sum(step_ms[:place]) for place in range(num_steps)]
    steps = [
        StepRow(
            rank=rank,
            step=step,
            begin_ns=round(begins[step] * MS),
            duration_ns=round(step_ms[step] * MS),
            between_ns=0 if step + 1 < num_steps else None,
            peak_memory_bytes=peak_bytes[step] if peak_bytes else None,
            **{f"{name}_ns": round(values[step] * MS) for name, values in phases_ms.items()},
        )
        for step in range(num_steps)
        for rank in ranks
    ]
    by_step = [
        StepTimes(kind="operator", name=name, shapes=shapes, module=None, times_ns=tuple(round(one * MS) for one in ms))
        for name, ms in (operators or {}).items()
    ]
    times = dict.fromkeys((field.name for field in fields(OperatorRow) if field.name.endswith("_ns")), 0)
    rows = [
        OperatorRow(name=name, shapes=shapes, num_calls=number * num_steps * len(ranks), **times)
        for name, number in (calls or {}).items()
    ]
    run = {
        "name": "made",
        "title": "made",
        "state": None,
        "world_size": len(ranks),
        "ranks": list(ranks),
        "hosts": [],
        "num_steps": num_steps,
        "missing": [],
        "parts": None,
    }
    empty = {name: [] for name in ("ranks", "collectives", "stragglers", "kernels", "memory", "findings")}
    return RunReport(run={**run, "notes": []}, steps=steps, by_step=by_step, operators=rows, **empty)


def noisy(draw, typical, num_steps=20, noise=0.01):
    return [typical * (1 + noise * draw.gauss(0, 1)) for _ in range(num_steps)]


def row_of(comparison, name, kind=None):
    return next(row for row in comparison.rows if row.name == name and kind in (None, row.kind))


def verdicts(comparison):
    return {row.name: row.verdict for row in comparison.rows}


# -- simulated runs


def simulated(settings):
    """Return the report on a simulated run."""
    return analyze_cached(settings)[1]


@pytest.mark.parametrize("seed", range(NUM_COMPARISONS))
def test_slower_operator_comes_first_and_a_repeated_recording_shows_no_change(seed):
    step_ns = (3_000_000, 30_000_000)[seed % 2]
    settings = replace(healthy_settings(seed, step_ns), num_steps=10, jitter_ns=2_000)
    name = ("aten::mm", "aten::addmm")[(seed + seed // 2) % 2]
    now = simulated(settings)
    again = simulated(replace(settings, seed=seed + 1000))
    assert compare_reports(again, now).worse == []
    faster = simulated(replace(settings, seed=seed + 2000, faster=((name, 1.1),)))
    slower = compare_reports(faster, now)
    assert slower.worse[0].name == name
    assert slower.rows[0] == slower.worse[0]
    low, high = slower.worse[0].interval
    assert low < 0.1 < high
    assert compare_reports(now, faster).worse == []


@pytest.mark.parametrize(
    ("kind", "name"),
    [("slow_loader", "data_wait"), ("slow_network", "record_param_comms"), ("leak", "peak memory")],
)
def test_a_fault_that_is_new_is_named_first(kind, name):
    settings = replace(planted_settings(1, kind), num_ranks=2, has_memory=True)
    before = simulated(replace(settings, seed=2, faults=()))
    assert compare_reports(before, simulated(settings)).worse[0].name == name


def test_rank_that_others_wait_for_may_vary_within_noise():
    settings = Settings(num_ranks=2, num_steps=10)
    late = [(Fault(kind="late_host", ranks=(rank,), cost_ns=3_000_000),) for rank in range(2)]
    first, second = (simulated(replace(settings, faults=late[rank])) for rank in range(2))
    only_0 = [replace(one, steps=[row for row in one.steps if row.rank == 0]) for one in (first, second)]
    waits = [row_of(compare_reports(*pair), "device_exposed_communication") for pair in ((first, second), only_0)]
    assert "slower" not in {row.verdict for row in waits}


def test_compare_takes_what_analyze_takes(tmp_path):
    settings = Settings(num_ranks=2, num_steps=8)
    simulate(settings).write(tmp_path / "before")
    simulate(replace(settings, seed=1)).write(tmp_path / "after")
    from_folders = kinetoscope.compare(tmp_path / "before", tmp_path / "after", cache=False)
    traces = kinetoscope.load(tmp_path / "before", cache=False)
    report_on_it = kinetoscope.analyze(tmp_path / "after", cache=False)
    of_traces = kinetoscope.compare(iter(list(traces)), report_on_it)  # which do not say that they are a folder's
    assert replace(of_traces, before=of_traces.before | {"title": "before"}) == from_folders
    assert from_folders.step.before == pytest.approx(from_folders.step.after, rel=0.02)


def test_only_ranks_that_both_runs_have_are_compared(tmp_path):
    settings = Settings(num_ranks=2, num_steps=8)
    simulate(settings).write(tmp_path / "two")
    simulate(replace(settings, missing_ranks=(1,))).write(tmp_path / "one")
    found = kinetoscope.compare(tmp_path / "two", tmp_path / "one", cache=False)
    assert found.notes == ["Before has ranks 0-1, after rank 0: of both, only rank 0 is compared."]
    assert {row.change for row in found.rows} == {0.0}
    assert found.before["ranks"] == [0]


def test_values_recorded_in_one_run_only_are_no_difference():
    settings = Settings(num_ranks=1, num_steps=8)
    with_shapes = simulated(settings)
    without = simulated(replace(settings, has_shapes=False))
    found = compare_reports(with_shapes, without)
    assert all(row.shapes is None for row in found.rows)
    assert max(abs(row.change) for row in found.rows) < 0.001


def test_one_operator_in_two_modules_is_compared_in_each(tmp_path):
    spans = [("nn.Module: Linear_0", "python_function", 0, 400), ("aten::mm", "cpu_op", 100, 200)]
    spans += [("nn.Module: Linear_1", "python_function", 500, 400), ("aten::mm", "cpu_op", 600, 200)]
    before = with_spans(tmp_path / "before.json", spans)
    after = with_spans(tmp_path / "after.json", [*spans[:-1], ("aten::mm", "cpu_op", 600, 290)])
    operators = [row for row in kinetoscope.compare(before, after, cache=False).rows if row.kind == "operator"]
    assert [(row.module, row.change) for row in operators] == [("Linear_1", pytest.approx(0.45)), ("Linear_0", 0.0)]
    unknown = with_spans(tmp_path / "unknown.json", [span for span in spans if span[1] == "cpu_op"])
    operators = [row for row in kinetoscope.compare(unknown, after, cache=False).rows if row.kind == "operator"]
    assert [(row.module, row.change) for row in operators] == [(None, pytest.approx(0.225))]


def with_spans(path, spans):
    """Return a trace of ten steps, each a millisecond, with these spans (name, category, begin and microseconds) in
    each."""
    steps = [(f"ProfilerStep#{step}", "user_annotation", 1000 * step, 1000) for step in range(10)]
    repeated = [(name, category, 1000 * step + ts, dur) for step in range(10) for name, category, ts, dur in spans]
    events = [
        {"ph": "X", "name": name, "cat": category, "pid": 1, "tid": 1, "ts": ts, "dur": dur}
        for name, category, ts, dur in steps + repeated
    ]
    path.write_text(json.dumps(events), encoding="utf-8")
    return path


# -- verdicts


@pytest.mark.parametrize(("step_ms", "num_worse"), [(8, 0), (10, 0), (14, 1)])
@pytest.mark.parametrize("wait", ["sync", "device_idle", "data_wait", "communication_wait"])
def test_a_wait_got_worse_only_if_the_step_did(wait, step_ms, num_worse):
    draw = random.Random(0)
    before, after = (
        report(noisy(draw, length_ms, noise=0.001), ranks=(0, 1), **{wait: noisy(draw, wait_ms)})
        for length_ms, wait_ms in ((10, 2), (step_ms, 4))
    )
    found = compare_reports(before, after)
    assert found.step.verdict == {8: "faster", 10: "same", 14: "slower"}[step_ms]
    assert row_of(found, wait).verdict == "slower"
    assert [row.name for row in found.worse if row.kind == "phase"] == [wait] * num_worse
    assert ("Only waits got longer by more than 5 %." in describe_comparison(found)) == (not num_worse)


def test_longer_wait_is_worse_if_the_step_is_inconclusive():
    draw = random.Random(0)
    before = report(noisy(draw, 10, noise=0.3), data_wait=noisy(draw, 2))
    found = compare_reports(before, report(noisy(draw, 10.5, noise=0.3), data_wait=noisy(draw, 4)))
    assert found.step.verdict == "unsure"
    assert [row.name for row in found.worse] == ["data_wait"]


def test_an_operator_got_worse_even_if_the_step_got_faster():
    draw = random.Random(0)
    names = [f"aten::op{place}" for place in range(12)]
    before = report(noisy(draw, 10), operators={name: noisy(draw, 0.5) for name in names}, sync=noisy(draw, 2))
    slower = {name: noisy(draw, 0.8 if name == names[3] else 0.5) for name in names}
    found = compare_reports(before, report(noisy(draw, 8), operators=slower, sync=noisy(draw, 4)))
    assert found.step.verdict == "faster"
    assert [row.name for row in found.worse] == ["aten::op3"]
    assert found.rows[0] == found.worse[0]


def test_a_change_that_all_operators_share_may_be_the_machine():
    draw = random.Random(0)
    names = [f"aten::op{place}" for place in range(12)]
    before = report(noisy(draw, 10), operators={name: noisy(draw, 0.8) for name in names})
    after = report(noisy(draw, 12), operators={name: noisy(draw, 0.96) for name in names})
    found = compare_reports(before, after)
    assert found.step.verdict == "unsure"
    assert found.worse == []
    assert found.more_steps is None, "more steps do not tell a busy machine from a slow program"


def test_change_of_one_operator_is_found_among_unchanged_ones():
    draw = random.Random(0)
    names = [f"aten::op{place}" for place in range(12)]
    before = report(noisy(draw, 10), operators={name: noisy(draw, 0.8) for name in names})
    after = report(noisy(draw, 10.4), operators={name: noisy(draw, 1.2 if name == names[3] else 0.8) for name in names})
    found = compare_reports(before, after)
    assert [row.name for row in found.worse] == ["aten::op3"]
    assert found.worse[0].change == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(("has_calls", "verdict"), [(False, "unsure"), (True, "faster")])
def test_operators_called_less_often_do_not_set_the_noise_between_recordings(has_calls, verdict):
    draw = random.Random(0)
    names = [f"aten::op{place}" for place in range(12)]
    fewer = names[4:]

    def run(step_ms, op_ms, num_calls):
        times = {name: noisy(draw, op_ms if name in fewer else 0.8) for name in names}
        calls = {name: num_calls if name in fewer else 2 for name in names}
        return report(noisy(draw, step_ms), operators=times, calls=calls if has_calls else None)

    assert compare_reports(run(10, 0.5, 32), run(4, 0.1, 4)).step.verdict == verdict


def test_step_that_waits_for_the_device_is_as_steady_despite_a_busy_cpu():
    draw = random.Random(0)
    names = [f"aten::op{place}" for place in range(12)]

    def run(step_ms):
        times = {name: noisy(draw, draw.uniform(0.35, 0.45)) for name in names}
        return report(noisy(draw, step_ms, noise=0.002), operators=times, device_busy=[step_ms * 0.97] * 20)

    assert compare_reports(run(10), run(10)).step.verdict == "same"
    assert compare_reports(run(10), run(11)).step.verdict == "slower"


def test_a_small_change_for_sure_is_slower_but_no_failure():
    draw = random.Random(1)
    found = compare_reports(report(noisy(draw, 10, 100, 0.001)), report(noisy(draw, 10.3, 100, 0.001)))
    assert found.step.verdict == "slower"
    assert found.worse == []
    assert compare_reports(
        report(noisy(draw, 10, 100, 0.001)), report(noisy(draw, 10.3, 100, 0.001)), threshold=0.02
    ).worse


def test_an_unsure_step_says_how_many_more_steps_would_tell():
    draw = random.Random(0)
    steps = {num: [noisy(draw, mean, num, 0.08) for mean in (1000, 1050)] for num in (20, 400)}
    found = compare_reports(*map(report, steps[20]))
    assert found.step.verdict == "unsure"
    assert 5 < found.more_steps < 19, "less than twice as many do"
    assert compare_reports(*map(report, steps[400])).step.verdict == "slower"


def test_an_operator_that_one_run_lacks_is_new_or_gone():
    draw = random.Random(3)
    one, other = noisy(draw, 10), noisy(draw, 10)
    before = report(one, operators={"aten::mm": noisy(draw, 3), "aten::relu": noisy(draw, 1)})
    after = report(other, operators={"aten::mm": noisy(draw, 3), "aten::gelu": noisy(draw, 2)})
    found = compare_reports(before, after)
    assert verdicts(found) | {"aten::relu": "gone", "aten::gelu": "new"} == verdicts(found)
    assert (row_of(found, "aten::gelu").before, row_of(found, "aten::relu").after) == (None, None)


def test_a_phase_that_took_nothing_before_is_slower_and_not_infinitely_so():
    draw = random.Random(4)
    before = report(noisy(draw, 10), data_wait=[0.0] * 19 + [0.001])
    after = report(noisy(draw, 14), data_wait=noisy(draw, 4))
    found = row_of(compare_reports(before, after), "data_wait")
    assert found.verdict == "slower"
    assert math.isfinite(found.change)


def test_a_pause_in_every_sixth_step_is_seen_in_the_mean_step():
    draw = random.Random(5)
    before, after = noisy(draw, 10, 240, 0.001), noisy(draw, 10, 240, 0.001)
    after = [step_ms + (6 if index % 6 == 5 else 0) for index, step_ms in enumerate(after)]
    found = compare_reports(report(before), report(after))
    assert found.step.verdict == "same"
    assert [(row.name, row.change) for row in found.worse] == [("mean step", pytest.approx(0.1, abs=0.01))]


def test_more_memory_fails_and_less_does_not():
    draw = random.Random(6)
    sizes = {gigabytes: [gigabytes * 10**9] * 20 for gigabytes in (4, 5)}
    before, after = (report(noisy(draw, 10), peak_bytes=sizes[gigabytes]) for gigabytes in (4, 5))
    assert [(row.kind, row.change, row.unit) for row in compare_reports(before, after).worse] == [
        ("memory", pytest.approx(0.25), "bytes")
    ]
    assert compare_reports(after, before).worse == []


def test_a_busy_machine_makes_nothing_slower():
    """Each step depends on the last, there are pauses, and in every run everything is slower or faster than usual."""
    draw = random.Random(0)
    num_wrong = sum(bool(compare_reports(busy_run(draw), busy_run(draw)).worse) for _ in range(40))
    assert num_wrong <= 2


def busy_run(draw):
    speed = math.exp(draw.gauss(0, 0.2))
    level, levels = 0.0, []
    for _ in range(40):
        level = 0.8 * level + draw.gauss(0, 0.1)
        levels.append(speed * math.exp(level))
    names = {f"aten::op{place}": 0.5 * math.exp(draw.gauss(0, 0.05)) for place in range(12)}
    operators = {
        name: [usual * one * draw.lognormvariate(0, 0.1) + (5 if draw.random() < 0.02 else 0) for one in levels]
        for name, usual in names.items()
    }
    return report([sum(values[step] for values in operators.values()) for step in range(40)], operators=operators)


# -- what cannot be compared


def test_without_steps_in_one_run_there_is_a_sentence_and_no_row():
    empty = replace(report([10.0] * 10), steps=[], run={**report([10.0]).run, "num_steps": 0})
    found = compare_reports(report([10.0] * 10), empty)
    assert (found.rows, found.step, found.worse) == ([], None, [])
    assert found.notes[0].startswith("After: no step was recorded, so nothing can be compared.")


def test_too_few_steps_have_no_interval_and_a_note_on_how_to_record_more():
    found = compare_reports(report([10.0] * 5), report([20.0] * 12))
    assert (found.step.verdict, found.step.interval, found.step.change) == ("unsure", None, 1.0)
    assert found.worse == []
    assert found.more_steps == 3
    assert "Before: 5 of the 8 steps that an interval needs." in found.notes[0]


def test_steps_without_a_length_are_compared_too():
    found = compare_reports(report([0.0] * 10), report([1.0] * 10))
    assert verdicts(found) == {"typical step": "slower", "mean step": "slower"}


def test_different_programs_are_reported():
    draw = random.Random(7)
    before = report(noisy(draw, 10), operators={"aten::conv2d": noisy(draw, 8)})
    after = report(noisy(draw, 10), operators={"aten::mm": noisy(draw, 8)})
    notes = compare_reports(before, after).notes
    assert notes == ["2 of 2 operators and kernels are in one run only: these may be different programs."]


def test_runs_without_a_rank_in_common_are_compared_on_average():
    draw = random.Random(8)
    found = kinetoscope.compare(report(noisy(draw, 10), ranks=(0,)), report(noisy(draw, 10), ranks=(4, 5)))
    assert "Before has rank 0, after ranks 4-5: none is in both" in found.notes[0]
    assert found.step.verdict == "same"


def test_a_comparison_in_a_terminal_has_times_in_milliseconds_and_memory_in_bytes():
    steps, memory = [10.0] * 20, [1000.0] * 20
    found = compare_reports(report(steps, peak_bytes=memory), report([2 * one for one in steps], peak_bytes=memory))
    lines = repr(found).splitlines()
    assert "  slower  step typical step: 10 ms, then 20 ms (+100.0%)" in lines
    assert any(": 1,000 bytes, then 1,000 bytes (+0.0%)" in line for line in lines)


def test_a_comparison_is_json_and_a_table():
    draw = random.Random(9)
    found = compare_reports(report(noisy(draw, 10)), report(noisy(draw, 10)))
    plain = json.loads(found.to_json())
    assert plain["schema"] == 2
    assert plain["rows"][0]["verdict"] in ("same", "unsure")
    assert len(found.frame) == len(plain["rows"])
