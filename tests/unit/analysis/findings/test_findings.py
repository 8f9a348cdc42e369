"""Findings: what is wrong with a run, named first, and nothing wrong in a healthy one."""

import json
import os
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

import kinetoscope
from kinetoscope.analysis.findings import recording_options
from kinetoscope.analysis.findings.recording_options import LINE_ADVICE
from kinetoscope.analysis.findings.rule import load_rules
from trainsim import FINDINGS, Fault, Settings, healthy_settings, planted_settings, simulate, stories
from trainsim.analyses import add_core_load, analyze_cached, write_changed

NUM_RUNS = int(os.environ.get("KINETOSCOPE_SIMULATED_RUNS", "1"))

UNLIKE_A_RERUN = ("leak", "idle_gaps", "float32", "float64", "preempted")
"""Faults without a saving, and those with an unknown speed of the fixed kernel."""


def report_on(settings):
    """Return the report on a run."""
    return analyze_cached(settings)[1]


def report_after(change, settings, folder):
    """Return the report on a run; ``change`` changes each trace, as plain data, before it is read."""
    return kinetoscope.analyze(write_changed(change, settings, folder), cache=False)


def finding(report, kind):
    return next(finding for finding in report.findings if finding.kind == kind)


def kinds_in(report):
    return [finding.kind for finding in report.findings]


def leads(report, kind):
    surest = "medium" if kind == "idle_gaps" else "high"  # a replay cannot explain these gaps, so it is not trusted
    return [(finding.kind, finding.confidence) for finding in report.findings[:1]] == [(FINDINGS[kind], surest)]


# -- planted faults, and none


def planted(kind):
    """Return a run with one fault, with the report on it."""
    is_late = kind.startswith("late")
    settings = planted_settings(0, kind, rank=1 if is_late else None)
    return analyze_cached(replace(settings, num_ranks=3 if is_late else 2, num_steps=9))


@pytest.mark.parametrize("kind", FINDINGS)
def test_a_planted_fault_leads_as_surely_as_it_can(kind):
    _, report = planted(kind)
    assert leads(report, kind)


@pytest.mark.parametrize("kind", [kind for kind in FINDINGS if kind not in UNLIKE_A_RERUN])
def test_a_saving_is_what_the_run_is_faster_without_the_fault(kind):
    run, report = planted(kind)
    truth, step_ns = run.saving_ns_per_step(run.without(0)), run.time_ns / run.num_steps
    assert finding(report, FINDINGS[kind]).saving_ns_per_step == pytest.approx(truth, abs=0.02 * step_ns)


@pytest.mark.skipif(NUM_RUNS < 2, reason="a fault of each kind is planted above; make test-long plants 50 more")
def test_nearly_every_planted_fault_leads():
    kinds = [list(FINDINGS)[seed % len(FINDINGS)] for seed in range(NUM_RUNS)]
    reports = [report_on(planted_settings(100 + seed, kind)) for seed, kind in enumerate(kinds)]
    wrong = [kind for kind, report in zip(kinds, reports, strict=True) if not leads(report, kind)]
    assert len(wrong) <= 0.06 * NUM_RUNS, wrong


def test_nearly_always_two_planted_faults_are_the_first_two():
    wrong = []
    for number, kinds in enumerate(pairs_that_matter(NUM_RUNS)):
        report = report_on(planted_settings(number, *kinds))
        if set(kinds_in(report)[:2]) != {FINDINGS[kind] for kind in kinds}:
            wrong.append(kinds)
    assert len(wrong) <= 0.06 * NUM_RUNS, wrong


def pairs_that_matter(count):
    """Return two kinds of faults for each seed that do not hide each other: a run without either is faster."""
    draw = random.Random(count)
    for seed in range(count):
        while True:
            kinds = draw.sample(list(FINDINGS), 2)
            if len({FINDINGS[kind] for kind in kinds}) == 2 and set(kinds) != {"float32", "float64"}:
                run = simulate(planted_settings(seed, *kinds))
                saved = [run.saving_ns_per_step(run.without(place)) for place in (0, 1)]
                least = 0.1 * run.time_ns / run.settings.num_steps
                if all(kind == "leak" or saving > least for kind, saving in zip(kinds, saved, strict=True)):
                    yield kinds
                    break


def test_a_healthy_run_has_no_finding_of_high_confidence():
    wrong = {}
    for seed in range(NUM_RUNS):
        settings = healthy_settings(seed, (300_000, 3_000_000, 30_000_000)[seed % 3])
        report = report_on(settings)
        wrong[seed] = [finding.kind for finding in report.findings if finding.confidence == "high"]
    assert not any(wrong.values()), wrong


def test_every_kind_is_planted_by_a_test():
    of_pulse = {"hang", "slow_steps"}
    kinds = {rule.kind for rule in load_rules()}
    assert kinds == {*FINDINGS.values(), "memory_limit", "hot_line", "pipeline_bubble"} | of_pulse


# -- what is not a fault


def test_a_healthy_loop_that_reads_its_loss_in_each_step_need_not_stop_doing_that():
    report = report_on(Settings(step_ns=10_000_000, num_ranks=1, num_steps=8, reads_loss="each step"))
    assert sum(row.sync_ns for row in report.steps) > 0.8 * sum(row.duration_ns for row in report.steps)
    assert "synchronisation" not in kinds_in(report)


def test_a_rank_that_is_late_for_its_data_is_not_also_a_loop_that_waits_for_data():
    report = report_on(replace(stories.ONE_SLOW_DATALOADER, num_ranks=3))
    assert kinds_in(report)[0] == "straggler"
    assert "input_bound" not in kinds_in(report)


def test_wait_for_a_straggler_is_not_communication():
    _, report = planted("late_host")
    assert "exposed_communication" not in kinds_in(report)


def test_gc_pause_during_a_device_sync_costs_nothing():
    report = report_on(replace(stories.RARE_GC_PAUSES, num_ranks=2))
    assert "synchronisation" not in kinds_in(report)


def test_input_bound_loop_saves_nothing_by_less_device_sync():
    assert kinds_in(planted("slow_loader")[1]) == ["input_bound"]


# -- what a finding says


def test_fault_costs_the_device_wait_not_cpu_time_while_the_device_is_busy():
    _, report = planted("recompilation")
    found = report.findings[0]
    assert dict(found.evidence)["compile_ns"] > 1.1 * found.cost_ns_per_step
    assert found.cost_ns_per_step == pytest.approx(found.saving_ns_per_step, rel=0.05)


def test_a_finding_names_the_lines_and_operators_where_stacks_were_recorded():
    settings = replace(stories.VALUES_READ_ONE_BY_ONE, num_ranks=1, has_stacks=True, num_steps=8)
    where = finding(report_on(settings), "synchronisation").where
    assert (where.spans[0], where.lines[0]) == ("aten::_local_scalar_dense", "model.py:8")


def test_a_collection_every_third_step_names_its_steps_and_interval():
    fault = Fault(kind="gc", cost_ns=9_000_000, every=3)
    found = finding(report_on(Settings(num_ranks=1, num_steps=12, faults=(fault,))), "garbage_collection")
    assert found.where.steps == (3, 6, 9, 12)
    assert dict(found.evidence)["every_n_steps"] == 3


def test_with_too_few_steps_no_interval_is_named_and_the_report_says_what_to_record():
    fault = Fault(kind="gc", cost_ns=9_000_000, every=3)
    report = report_on(Settings(num_ranks=1, num_steps=6, faults=(fault,)))
    assert "every_n_steps" not in dict(finding(report, "garbage_collection").evidence)
    assert "Record 10: `kinetoscope run -n 10`, or in Python `schedule=kinetoscope." in report.run["notes"][0]


def test_more_workers_are_advised_only_where_cores_are_idle(tmp_path):
    settings = replace(stories.SLOW_DATALOADER, num_ranks=1, num_steps=8)
    advice = {
        percent: finding(
            report_after(add_core_load(percent), settings, tmp_path / str(percent)),
            "input_bound",
        ).advice
        for percent in (30, 97)
    }
    assert "num_workers" in advice[30]
    assert "only 30 % busy" in advice[30]
    assert "more workers would help only if they mostly wait, which this recording does not show" in advice[97]
    assert (
        "This helps if cores are idle: a recording with `kinetoscope run`, or `system=True`, shows it."
        in finding(report_on(settings), "input_bound").advice
    )


def test_advice_omits_active_options_and_a_short_recording_has_its_length(tmp_path):
    settings = replace(stories.SLOW_DATALOADER, num_ranks=1, num_steps=8)
    advice = finding(report_after(add_core_load(30, 2), settings, tmp_path), "input_bound").advice
    assert "the recording is too short to show it: record for 2 s or more." in advice
    assert "system=True" not in advice


def test_loop_that_builds_its_batches_itself_is_advised_to_use_workers():
    fault = Fault(kind="slow_loader", cost_ns=3_000_000)
    report = report_on(Settings(num_ranks=1, num_steps=8, num_workers=0, faults=(fault,)))
    found = finding(report, "input_bound")
    assert dict(found.evidence)["num_workers"] == 0
    assert found.advice.startswith("The loop builds its batches itself")


def test_loop_with_fast_batches_is_not_advised_to_use_workers():
    fault = Fault(kind="slow_loader", cost_ns=300_000)
    report = report_on(Settings(num_ranks=1, num_steps=8, num_workers=0, has_device=False, faults=(fault,)))
    advice = finding(report, "input_bound").advice
    assert "num_workers" not in advice
    assert "workers would save little" in advice


@pytest.mark.parametrize(
    ("cores", "process", "confidence"), [(99, 40, "medium"), (99, 100, "high"), (50, 40, "high"), (99, None, "high")]
)
def test_a_loop_that_may_have_waited_for_a_core_is_not_surely_slow(tmp_path, cores, process, confidence):
    """Which the states of its thread would tell, if they were recorded."""
    settings = replace(stories.PYTHON_BETWEEN_OPERATORS, num_ranks=1, num_steps=8)
    found = finding(report_after(add_core_load(cores, of_process=process), settings, tmp_path), "python_overhead")
    assert found.confidence == confidence
    sentence = "The machine's cores were 99 % busy, and this process used 40 % of one"
    assert (sentence in found.advice) == (confidence == "medium")


def test_few_long_pauses_are_not_attributed_to_python_of_model_or_optimizer():
    def advice(cost_ns, every):
        fault = Fault(kind="slow_python", cost_ns=cost_ns, every=every)
        settings = Settings(num_ranks=1, num_steps=9, has_device=False, faults=(fault,))
        return finding(report_on(settings), "python_overhead").advice

    assert "fused=True" in advice(300_000, 1)
    assert "fused=True" not in advice(9_000_000, 3)
    assert "in which the loop calls no operator: it runs Python code, or waits." in advice(9_000_000, 3)


@pytest.mark.parametrize(("kind", "fault"), [("python_overhead", "slow_python"), ("input_bound", "slow_loader")])
def test_a_finding_without_a_line_names_the_option_that_records_it(kind, fault):
    faults = (Fault(kind=fault, cost_ns=9_000_000),)
    settings = Settings(num_ranks=1, num_steps=9, num_workers=0, has_device=False, faults=faults)
    found = finding(report_on(settings), kind)
    assert found.where.lines == ()
    assert found.advice.endswith(LINE_ADVICE)
    assert "`kinetoscope run --diagnose` (`diagnose=True` in Python)" in LINE_ADVICE


def test_a_finding_with_a_line_names_no_option():
    found = finding(report_on(replace(stories.VALUES_READ_ONE_BY_ONE, has_stacks=True)), "synchronisation")
    assert "--diagnose" not in found.advice


def test_advice_that_names_an_argument_of_python_names_the_option_of_the_command_line_too():
    folder = Path(recording_options.__file__).parent
    for path in folder.rglob("*.py"):
        for text in re.findall(r"[^\n]*`(?:diagnose=True|StackSampler\(\))`[^\n]*", path.read_text(encoding="utf-8")):
            assert "kinetoscope run --diagnose" in text, (path.name, text)


def test_advice_on_batches_names_a_gpu_only_where_there_is_one(tmp_path):
    settings = replace(stories.SLOW_DATALOADER, num_ranks=1, num_steps=8)
    for has_device in (True, False):
        of_run = replace(settings, has_device=has_device)
        advice = finding(report_after(add_core_load(97), of_run, tmp_path / str(has_device)), "input_bound").advice
        assert "preprocess the dataset once" in advice
        assert ("GPU" in advice) == has_device
        assert "files" not in advice


def test_descheduled_process_gets_no_python_overhead(tmp_path):
    fault = Fault(kind="slow_python", cost_ns=30_000_000)
    settings = Settings(num_ranks=1, num_steps=9, has_device=False, faults=(fault,))
    titles = {
        percent: finding(
            report_after(add_core_load(50, of_process=percent), settings, tmp_path / str(percent)), "python_overhead"
        ).title
        for percent in (5, 95)
    }
    assert titles[5].startswith("Idle process: the loop waits ")
    assert titles[95].startswith("Python overhead: ")


def test_memory_that_will_run_out_soon_comes_first():
    faults = (Fault(kind="leak", num_bytes=150_000_000), Fault(kind="gc", cost_ns=9_000_000))
    report = report_on(Settings(num_ranks=1, num_steps=10, faults=faults))
    first, second = report.findings[:2]
    assert (first.kind, second.kind) == ("memory_growth", "garbage_collection")
    evidence = dict(first.evidence)
    assert evidence["bytes_per_step"] == 150_000_000
    assert 500 < evidence["steps_until_full"] < 600
    assert first.where.spans == ("aten::clone",)


def test_a_fault_that_is_sure_comes_before_one_that_may_be_none():
    faults = (Fault(kind="leak", num_bytes=2_000_000), Fault(kind="gc", cost_ns=100_000))
    report = report_on(Settings(num_ranks=1, num_steps=10, has_device=False, faults=faults))
    first, second = report.findings[:2]
    assert (first.kind, first.confidence, first.saving_ns_per_step) == ("memory_growth", "high", None)
    assert (second.kind, second.confidence) == ("garbage_collection", "low")


def test_memory_that_is_nearly_full_is_a_finding():
    leak = Fault(kind="leak", num_bytes=6_900_000_000)
    report = report_on(Settings(num_ranks=2, num_steps=8, num_warmup_steps=4, faults=(leak,)))
    found = finding(report, "memory_limit")
    assert found.where.ranks == (0, 1)
    assert dict(found.evidence)["share_of_device"] == pytest.approx(0.977, abs=0.01)


def test_no_saving_is_claimed_for_unexplained_device_waits():
    report = report_on(stories.GAPS_AND_FLOAT64)
    assert {found.kind: found.saving_ns_per_step for found in report.findings} == {"idle_gaps": None, "float64": None}
    assert any(note.startswith("The estimated savings of findings are unknown: 9") for note in report.run["notes"])


# -- without a device


def test_products_in_float64_are_found_on_the_cpu():
    fault = Fault(kind="float64", cost_ns=200_000)
    report = report_on(Settings(num_ranks=1, num_steps=8, has_device=False, faults=(fault,)))
    assert kinds_in(report)[0] == "float64"


@pytest.mark.parametrize(("num_operators", "confidence"), [(160, "medium"), (1200, "high")])
def test_many_small_operators_are_found_on_the_cpu_with_the_python_before_them(tmp_path, num_operators, confidence):
    events = []
    for step in range(8):
        begin, length, name = 6.2 * num_operators * step, 6 * num_operators, f"ProfilerStep#{step}"
        events.append({"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": begin})
        events[-1]["dur"] = length
        events += [
            {"ph": "X", "cat": "cpu_op", "name": "aten::add_", "pid": 1, "tid": 1, "ts": begin + 6 * place, "dur": 5}
            for place in range(num_operators)
        ]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    found = kinetoscope.analyze(path, cache=False).findings[0]
    assert (found.kind, found.confidence, found.saving_ns_per_step) == ("small_kernels", confidence, None)
    assert found.cost_ns_per_step == pytest.approx(6000 * num_operators, rel=0.05)
    assert dict(found.evidence)["num_small_operators"] == num_operators


def test_steps_before_torch_recorded_are_no_python_time(tmp_path):
    """A profiler that warms torch up records two steps of its own before torch records operators."""

    def without_operators_at_first(trace):
        events = trace["traceEvents"]
        steps = sorted(event["ts"] for event in events if event.get("cat") == "batch")
        events[:] = [event for event in events if event.get("cat") != "cpu_op" or event["ts"] >= steps[2]]
        (recording,) = (event for event in events if event.get("cat") == "Trace")
        recording["dur"] -= steps[2] - recording["ts"]
        recording["ts"] = steps[2]

    settings = Settings(num_ranks=1, num_steps=10, has_device=False, step_spans="event/batch")
    assert kinds_in(report_after(without_operators_at_first, settings, tmp_path)) == []


def test_one_slow_batch_of_a_loop_that_makes_its_own_does_not_hide_other_faults():
    faults = (Fault(kind="slow_loader", cost_ns=1_500_000, every=9), Fault(kind="slow_python", cost_ns=300_000))
    settings = Settings(num_ranks=1, num_steps=10, num_workers=0, has_device=False, faults=faults)
    found = report_on(settings).findings[0]
    assert (found.kind, found.confidence) == ("python_overhead", "high")
    assert found.saving_ns_per_step == pytest.approx(found.cost_ns_per_step, rel=0.02)


def test_run_without_a_device_has_no_device_idle_time():
    settings = stories.PYTHON_BETWEEN_OPERATORS
    evidence = dict(finding(report_on(replace(settings, has_device=False)), "python_overhead").evidence)
    assert "python_ns" in evidence
    assert "device_wait_ns" not in evidence


def test_a_rank_that_spans_prove_late_is_named_with_them():
    fault = Fault(kind="gc", cost_ns=9_000_000, ranks=(1,), every=2)
    settings = Settings(num_ranks=2, num_steps=8, has_stacks=True, faults=(fault,))
    first = report_on(settings).findings[0]
    assert first.kind == "garbage_collection"
    assert (first.where.ranks, first.where.spans) == ((1,), ("gc/generation 2",))


def test_python_between_operators_is_named_by_the_operators_that_follow(tmp_path):
    events = []
    for step in range(8):
        begin, name = 1000.0 * step, f"ProfilerStep#{step}"
        events.append({"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": begin, "dur": 990})
        events += [
            {"ph": "X", "cat": "cpu_op", "name": "aten::item", "pid": 1, "tid": 1, "ts": begin + 16 * place, "dur": 6}
            for place in range(60)
        ]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    found = finding(kinetoscope.analyze(path, cache=False), "python_overhead")
    assert found.where.spans == ("aten::item",)
    assert found.confidence == "high"


@pytest.mark.parametrize(("pause_us", "cost_ns"), [(60, None), (400, 2 * 300_000)])
def test_the_little_python_that_each_operator_needs_is_no_overhead_on_the_cpu(tmp_path, pause_us, cost_ns):
    events = []
    for step in range(8):
        begin, name = 1000.0 * step, f"ProfilerStep#{step}"
        events.append({"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": begin, "dur": 990})
        events += [
            {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": begin + at, "dur": 10}
            for name, at in (("aten::linear", 0), ("aten::relu", 10 + pause_us), ("aten::mean", 20 + 2 * pause_us))
        ]
        events[-1]["dur"] = 990 - 20 - 2 * pause_us
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    costs = [found.cost_ns_per_step for found in kinetoscope.analyze(path, cache=False).findings]
    assert costs == ([] if cost_ns is None else [cost_ns])


@pytest.mark.parametrize(("num_stopped", "kinds"), [(2, []), (4, ["python_overhead"])])
def test_a_loop_that_was_stopped_once_or_twice_by_chance_has_no_python_overhead(tmp_path, num_stopped, kinds):
    events = []
    for step in range(8):
        begin, name = 1000.0 * step, f"ProfilerStep#{step}"
        events.append({"ph": "X", "cat": "user_annotation", "name": name, "pid": 1, "tid": 1, "ts": begin, "dur": 990})
        pause = 800 if step < num_stopped else 5
        events += [
            {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": begin + at, "dur": length}
            for name, at, length in (("aten::linear", 0, 20), ("aten::mean", 20 + pause, 970 - pause))
        ]
    path = tmp_path / "rank0.json"
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    assert [found.kind for found in kinetoscope.analyze(path, cache=False).findings] == kinds


def test_one_time_profiler_work_at_the_start_is_no_per_step_cost(tmp_path):
    def look_around(trace):
        first = min((event for event in trace["traceEvents"] if event.get("cat") == "batch"), key=lambda e: e["ts"])
        scan = {"name": "kinetoscope/scan live tensors", "cat": "kinetoscope", "dur": first["dur"] / 2}
        trace["traceEvents"].append(first | scan | {"ts": first["ts"] + first["dur"] / 4, "args": {}})

    settings = Settings(num_ranks=1, num_steps=8, has_device=False, step_spans="event/batch", step_ns=300_000)
    assert "profiler_cost" in kinds_in(report_on(stories.PROFILER_OVERHEAD))
    assert "profiler_cost" not in kinds_in(report_after(look_around, settings, tmp_path))


def test_a_report_that_was_kept_has_the_same_findings(tmp_path):
    simulate(replace(stories.LATE_RANK, num_ranks=2, num_steps=8)).write(tmp_path)
    fresh, kept = (kinetoscope.analyze(tmp_path).to_json() for _ in range(2))
    assert '"kind":"straggler"' in fresh
    assert kept == fresh


# -- lines that sources record


def test_line_that_triggers_most_gc_pauses_comes_first_even_if_others_are_longer(tmp_path):
    def add_lines(trace):
        pauses = [event for event in trace["traceEvents"] if event.get("cat") == "gc"]
        for number, pause in enumerate(pauses):
            pause.setdefault("args", {})["line"] = "rare.py:7" if number == 0 else "model/heads.py:41"
            pause["dur"] *= 1 if number else 1.5

    settings = replace(stories.GC_PAUSES, num_ranks=1, num_steps=9, faults=(Fault(kind="gc", cost_ns=3_000_000),))
    found = finding(report_after(add_lines, settings, tmp_path), "garbage_collection")
    assert found.where.lines == ("model/heads.py:41", "rare.py:7")
    share = dict(found.evidence)["share_of_line"]
    assert 0.5 < share < 1
    assert found.advice.startswith(
        f"Allocate fewer objects at model/heads.py:41, where {100 * share:.0f} % of the collections"
    )


@pytest.mark.parametrize(
    ("younger", "advice"), [(0, "Move `gc.collect()` at train.py:9 out of the step"), (1, "Allocate fewer objects")]
)
def test_explicit_gc_collections_are_distinguished_from_automatic_ones(younger, advice, tmp_path):
    def make_full(trace):
        pauses = [event for event in trace["traceEvents"] if event.get("cat") == "gc"]
        for number, pause in enumerate(pauses):
            pause["name"] = "gc generation 0" if number < younger else "gc generation 2"
            pause.setdefault("args", {})["line"] = "train.py:9"

    faults = (Fault(kind="gc", cost_ns=3_000_000),)
    settings = replace(stories.GC_PAUSES, num_ranks=1, num_steps=9, faults=faults)
    found = finding(report_after(make_full, settings, tmp_path), "garbage_collection")
    assert found.advice.startswith(advice)


def test_the_evidence_has_how_many_calls_a_step_has():
    waits = report_on(Settings(num_ranks=1, reads_loss="never", faults=(Fault(kind="items", count=20),)))
    assert dict(finding(waits, "synchronisation").evidence)["num_calls"] == pytest.approx(20)
    pauses = report_on(Settings(num_ranks=1, num_steps=12, faults=(Fault(kind="gc", cost_ns=9_000_000, every=3),)))
    assert dict(finding(pauses, "garbage_collection").evidence)["num_collections"] == pytest.approx(4 / 12, abs=1e-4)


@pytest.mark.parametrize(("in_collate", "named"), [(0.6, ("train.py:9", "some_trainer.py:15")), (0.4, ("train.py:9",))])
def test_library_function_with_most_gc_pauses_is_named_next_to_the_user_line(in_collate, named, tmp_path):
    def add_lines(trace):
        pauses = [event for event in trace["traceEvents"] if event.get("cat") == "gc"]
        for number, pause in enumerate(pauses):
            is_there = number < in_collate * len(pauses)
            library = "some_trainer.py(15): _collate" if is_there else f"some_trainer.py({number}): callback_{number}"
            pause.setdefault("args", {}).update(line="train.py:9", library=library)

    faults = (Fault(kind="gc", cost_ns=3_000_000),)
    settings = replace(stories.GC_PAUSES, num_ranks=1, num_steps=20, faults=faults)
    found = finding(report_after(add_lines, settings, tmp_path), "garbage_collection")
    assert found.where.lines == named
    assert ("started, mostly in _collate (some_trainer.py:15). " in found.advice) == (len(named) == 2)


def test_collections_without_lines_are_found_as_well():
    _, report = planted("gc")
    found = finding(report, "garbage_collection")
    assert found.where.lines == ()
    assert "share_of_line" not in dict(found.evidence)
    assert found.advice.startswith("Let collections skip the objects that stay")


def test_advice_on_a_loader_leaves_out_what_it_has_already(tmp_path):
    facts = {"num_workers": 3, "prefetch_factor": 4, "batch_size": 64, "persistent_workers": True, "pin_memory": False}

    def add_facts(trace):
        step = next(event for event in trace["traceEvents"] if event["name"].startswith("ProfilerStep#"))
        place = {key: step[key] for key in ("pid", "tid", "ts")}
        trace["traceEvents"].append(
            {"ph": "i", "s": "t", "name": "DataLoader", "cat": "loader", "args": facts, **place}
        )

    settings = replace(stories.SLOW_DATALOADER, num_ranks=1, num_steps=9)
    found = finding(report_after(add_facts, settings, tmp_path), "input_bound")
    assert found.advice.startswith("Add workers: `DataLoader(..., num_workers=5)`. ")
    assert {"num_workers": 3, "prefetch_factor": 4, "batch_size": 64}.items() <= dict(found.evidence).items()


@pytest.mark.parametrize(
    "number", ["9" * 5000, "9" * 30, "-3"], ids=["of 5,000 digits", "beyond 64 bits", "below zero"]
)
@pytest.mark.parametrize("fact", ["num_workers", "prefetch_factor"])
def test_a_loaders_facts_that_cannot_be_are_as_good_as_none(fact, number, tmp_path):
    settings = replace(stories.SLOW_DATALOADER, num_ranks=1, num_steps=9)
    for path in simulate(settings).write(tmp_path):
        trace = json.loads(path.read_text(encoding="utf-8"))
        step = next(event for event in trace["traceEvents"] if event["name"].startswith("ProfilerStep#"))
        place = {key: step[key] for key in ("pid", "tid", "ts")}
        about = {"ph": "i", "s": "t", "name": "DataLoader", "cat": "loader", "args": {fact: "the number"}}
        trace["traceEvents"].append(about | place)
        path.write_text(json.dumps(trace).replace('"the number"', number), encoding="utf-8")
    found = finding(kinetoscope.analyze(tmp_path, cache=False), "input_bound")
    assert fact not in dict(found.evidence)
    assert "a larger num_workers" in found.advice


def test_device_with_impossible_memory_counts_as_unknown_memory(tmp_path):
    def change(trace):
        trace["deviceProperties"] = [{"id": 0, "name": "GPU", "totalGlobalMem": 10**400}]

    settings = replace(stories.LEAK, num_ranks=1, num_steps=9)
    found = finding(report_after(change, settings, tmp_path), "memory_growth")
    assert "steps_until_full" not in dict(found.evidence)


def test_recompilation_names_the_function_and_the_failed_guard(tmp_path):
    def add_words(trace):
        for span in (event for event in trace["traceEvents"] if event.get("cat") == "compile"):
            span["args"] = {"function": "forward", "line": "model.py:12", "guard": "`x.size()[0]` was 32, is 17"}

    settings = replace(stories.RECOMPILATION, num_ranks=1, num_steps=9)
    found = finding(report_after(add_words, settings, tmp_path), "recompilation")
    assert "forward was compiled again because `x.size()[0]` was 32, is 17." in found.advice
    assert found.where.lines == ("model.py:12",)


def test_recompilation_is_reported_from_torchs_own_compiler_records(tmp_path):
    def as_torch_has_it(trace):
        for span in [event for event in trace["traceEvents"] if event.get("cat") == "compile"]:
            span |= {"cat": "cpu_op", "name": "_compile.compile_inner (dynamo_timed)"}
            inner = {"name": "build_guards (dynamo_timed)", "ts": span["ts"] + span["dur"] / 4, "dur": span["dur"] / 2}
            trace["traceEvents"].append(span | inner)

    settings = replace(stories.RECOMPILATION, num_ranks=1, num_steps=9)
    noted = finding(analyze_cached(settings)[1], "recompilation")
    found = finding(report_after(as_torch_has_it, settings, tmp_path), "recompilation")
    assert found.advice.endswith("Set `TORCH_LOGS=recompiles` to print the guards that fail.")
    for name in ("compile_ns", "num_compilations"):
        assert dict(found.evidence)[name] == pytest.approx(dict(noted.evidence)[name])


def test_compilation_in_the_first_recorded_steps_is_no_recompilation(tmp_path):
    def keep_first(trace):
        events = trace["traceEvents"]
        spans = sorted((event for event in events if event.get("cat") == "compile"), key=lambda span: span["ts"])
        del spans[0]["args"]["guard"]
        trace["traceEvents"] = [event for event in events if event not in spans[1:]]

    settings = replace(stories.RECOMPILATION, num_ranks=1, num_steps=9)
    found = finding(report_after(keep_first, settings, tmp_path), "recompilation")
    assert (found.title, found.confidence) == ("Compilation in 1 recorded step: 0.90 ms/step", "medium")
    assert "first compilation" in found.advice
    assert finding(analyze_cached(settings)[1], "recompilation").title.startswith("Recompilation: ")


def test_straggler_is_named_with_its_executing_line(tmp_path):
    settings = replace(stories.LATE_RANK, num_ranks=2, num_steps=8)

    def add_samples(trace):
        events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
        begin, end = min(event["ts"] for event in events), max(event["ts"] + event["dur"] for event in events)
        place = {"pid": events[0]["pid"], "tid": 77_777}
        sample = {"ph": "X", "cat": "stack_sample", "name": "log.py(7): write_all", "ts": begin, "dur": end - begin}
        about = {"ph": "i", "s": "t", "cat": "stack_sample", "name": "sampled every 0.1 ms", "ts": begin}
        trace["traceEvents"] += [sample | place, about | place]

    found = finding(report_after(add_samples, settings, tmp_path), "straggler")
    assert found.where.ranks == (1,)
    assert found.where.lines == ("log.py:7",)


def test_small_kernels_are_named_where_the_device_is_busy_with_them():
    """The device never waits for the host, but takes 7 % of a step for kernels that do next to nothing."""
    fault = Fault(kind="small_kernels", count=450)
    settings = Settings(num_ranks=2, num_steps=12, step_ns=6_000_000, layout="sharded", reads_loss="never")
    run, report = analyze_cached(replace(settings, kernel_gap_ns=0, faults=(fault,)))
    (found,) = (finding for finding in report.findings if finding.kind == "small_kernels")
    assert found.confidence == "medium"
    gain_ns = run.saving_ns_per_step(run.without())
    assert found.saving_ns_per_step == pytest.approx(gain_ns, abs=0.02 * run.time_ns / run.num_steps)
