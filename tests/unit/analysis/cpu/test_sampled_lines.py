"""Findings name the lines that sampled stacks show: the user's, where the time of the fault goes."""

import pytest

from kinetoscope.formats.trace_names import LATE_LINE
from support.sampled_traces import (
    ENDED_SAMPLES,
    LOOP,
    LOOP_SAMPLES,
    NUM_STEPS,
    STEP_US,
    WORKER_SAMPLES,
    busy_steps,
    each_step,
    findings_in,
    found_in,
    span,
    stack,
    waiting_steps,
)


def worker(begin):
    """A worker that makes a batch for 50 ms, and waits for its next one for as long."""
    getting = ("torch/utils/data/_utils/worker.py(268): _worker_loop",)
    fetching = (*getting, "torch/utils/data/_utils/fetch.py(54): fetch")
    item = "dataset.py(30): __getitem__"
    yield from stack(WORKER_SAMPLES, begin, 40_000, *fetching, item, "dataset.py(41): decode", "torch/io.py(7): read")
    yield from stack(WORKER_SAMPLES, begin + 40_000, 10_000, *fetching, "dataset.py(31): __getitem__")
    yield from stack(WORKER_SAMPLES, begin + 50_000, 50_000, *getting, "torch/queues.py(90): get")


def loop_that_waits(begin):
    yield from stack(LOOP_SAMPLES, begin, 80_000, "train.py(9): <module>", "torch/utils/data/dataloader.py(733): next")
    yield from stack(LOOP_SAMPLES, begin + 80_000, 20_000, "train.py(10): <module>")


def test_loop_that_waits_for_workers_gets_the_slow_line_of_the_workers(tmp_path):
    events = each_step(waiting_steps, loop_that_waits, worker)
    found = found_in(events, "input_bound", tmp_path, has_states=True)
    assert found.where.lines == ("dataset.py:41", "dataset.py:31")
    assert dict(found.evidence)["share_of_line"] == pytest.approx(0.8)
    assert dict(found.evidence)["num_workers"] == 1
    assert "dataset.py:41 takes 80 % of the workers' time (at least" in found.advice


def test_idle_worker_does_not_count_next_to_a_busy_one(tmp_path):
    """One of the epoch before, whose last sample is open until the window closes."""
    ended = "torch/utils/data/_utils/worker.py(268): _worker_loop", "torch/queues.py(90): get"
    idle = [*stack(ENDED_SAMPLES, 0, STEP_US * NUM_STEPS, *ended)]
    idle.append(span("waits: pipe", "stack_sample,state", ENDED_SAMPLES, 0, STEP_US * NUM_STEPS))
    events = each_step(waiting_steps, loop_that_waits, worker) + idle
    found = found_in(events, "input_bound", tmp_path, has_states=True)
    assert "dataset.py:41 takes 80 % of the workers' time (at least" in found.advice
    assert dict(found.evidence)["batch_wait_share"] == 0


def test_idle_workers_of_a_validation_loader_say_nothing_about_those_of_training(tmp_path):
    """Training's own workers started before the recording, so no worker was sampled while it made a batch."""
    idle = "torch/utils/data/_utils/worker.py(268): _worker_loop", "torch/queues.py(90): get"
    samples = [*stack(WORKER_SAMPLES, 0, STEP_US * NUM_STEPS, *idle)]
    samples.append(span("waits: pipe", "stack_sample,state", WORKER_SAMPLES, 0, STEP_US * NUM_STEPS))
    found = found_in([*each_step(waiting_steps, loop_that_waits), *samples], "input_bound", tmp_path, has_states=True)
    assert "batch_wait_share" not in dict(found.evidence)
    assert found.where.lines == ()
    assert "The workers started before the recording, so their lines were not sampled." in found.advice


def test_batches_that_workers_make_for_an_evaluation_are_not_those_of_training(tmp_path):
    def evaluation(begin):
        yield span("event/eval", "user_annotation", LOOP, begin, 50_000)

    events = each_step(waiting_steps, loop_that_waits, worker)
    lines = found_in(events, "input_bound", tmp_path, has_states=True).where.lines
    of_training = found_in([*events, *each_step(evaluation)], "input_bound", tmp_path, has_states=True).where.lines
    assert (lines, of_training) == (("dataset.py:41", "dataset.py:31"), ())


def test_loop_that_builds_its_batches_itself_gets_the_slow_line(tmp_path):
    def loop(begin):
        yield from stack(LOOP_SAMPLES, begin, 80_000, "train.py(9): <module>", "data.py(5): __getitem__")
        yield from stack(LOOP_SAMPLES, begin + 80_000, 20_000, "train.py(10): <module>")

    found = found_in(each_step(waiting_steps, loop), "input_bound", tmp_path, has_states=True)
    assert found.where.lines == ("data.py:5",)
    assert "data.py:5 takes 100 % of this time (at least" in found.advice


def test_python_between_operators_is_named_by_the_line_that_was_executing(tmp_path):
    def loop(begin):
        yield from stack(LOOP_SAMPLES, begin, 20_000, "train.py(9): <module>")
        yield from stack(LOOP_SAMPLES, begin + 20_000, 60_000, "train.py(10): <module>", "train.py(3): loss")
        yield from stack(LOOP_SAMPLES, begin + 80_000, 10_000, "train.py(10): <module>", "train.py(4): loss")
        yield from stack(LOOP_SAMPLES, begin + 90_000, 10_000, "train.py(11): <module>")

    def kineto(begin):
        yield span("train.py(1): loss", "python_function", LOOP, begin + 20_100, 69_000)

    found = found_in(each_step(busy_steps, loop, kineto), "python_overhead", tmp_path)
    assert found.where.lines == ("train.py:3", "train.py:4")
    assert dict(found.evidence)["share_of_line"] == pytest.approx(6 / 7, abs=0.01)


@pytest.mark.parametrize(("waits_us", "is_advised"), [(10_000, False), (40_000, True)])
def test_advice_is_on_the_wait_of_a_line_only_if_it_waits_longer_than_it_runs(waits_us, is_advised, tmp_path):
    def loop(begin):
        yield from stack(LOOP_SAMPLES, begin + 20_000, 70_000, "train.py(3): loss")
        yield span("waits: GIL, reader ran", "stack_sample,state", LOOP_SAMPLES, begin + 20_000, waits_us)

    found = found_in(each_step(busy_steps, loop), "python_overhead", tmp_path)
    assert ("the thread reader" in found.advice) == is_advised


@pytest.mark.parametrize(
    ("names", "kinds"),
    [
        (("waits: sleep", "running; the line is a later one"), {"blocked", "python_overhead"}),
        (("e1b2", "waits: sleep"), {"python_overhead"}),
        (("waits: sleep", "e1b2"), {"python_overhead"}),
    ],
)
def test_redacted_names_of_waits_make_running_samples_unknown(names, kinds, tmp_path):
    def loop(begin):
        yield from stack(LOOP_SAMPLES, begin + 20_000, 70_000, "train.py(3): loss")
        for index, name in enumerate(names):
            yield span(name, "stack_sample,state", LOOP_SAMPLES, begin + 20_000 + 40_000 * index, 30_000)

    assert {found.kind for found in findings_in(each_step(busy_steps, loop), tmp_path)} == kinds


def test_a_line_that_was_sampled_less_than_five_times_is_not_named(tmp_path):
    samples = stack(LOOP_SAMPLES, 20_000, 40_000, "train.py(3): loss")
    found = found_in(each_step(busy_steps) + samples, "python_overhead", tmp_path)
    assert found.where.lines == ()
    assert "share_of_line" not in dict(found.evidence)
    often = found_in(each_step(busy_steps) + samples, "python_overhead", tmp_path, interval_ms=1)
    assert often.where.lines == ("train.py:3",)


@pytest.mark.parametrize("interval_ms", ["0", "0.0000001", "9" * 400, "..."])
def test_impossible_interval_counts_as_the_default(interval_ms, tmp_path):
    found = found_in(
        each_step(waiting_steps, loop_that_waits, worker), "input_bound", tmp_path, interval_ms=interval_ms
    )
    assert found.where.lines[:1] == ("dataset.py:41",)


def test_a_sample_without_an_end_does_not_fill_the_memory(tmp_path):
    endless = stack(LOOP_SAMPLES, 0, 9_000_000_000_000, "train.py(9): <module>")
    findings = findings_in([*each_step(waiting_steps), *endless], tmp_path)
    assert [finding.kind for finding in findings][:1] == ["input_bound"]


def seen_at(*places):
    """Samples of 20 ms, one in each of the first steps, in the interval of Python of `busy_steps`."""
    for step, place in enumerate(places):
        yield from stack(LOOP_SAMPLES, STEP_US * step + 30_000, 20_000, place)


@pytest.mark.parametrize(
    ("places", "named"),
    [
        (["a.py(3): loss"] * 3, ("a.py:3",)),
        (["a.py(3): loss"] * 2, ()),
        (["a.py(3): loss", "a.py(4): loss", "a.py(5): loss", "a.py(6): loss", "a.py(3): loss", "a.py(3): loss"], ()),
        (["a.py(3): loss"] * 4 + ["a.py(4): loss"], ("a.py:3",)),
    ],
)
def test_few_samples_name_a_line_only_where_nearly_all_steps_agree(tmp_path, places, named):
    found = found_in(each_step(busy_steps) + list(seen_at(*places)), "python_overhead", tmp_path, interval_ms=20)
    assert found.where.lines == named


def test_the_advice_says_which_share_a_line_has_at_least(tmp_path):
    samples = list(seen_at("a.py(3): loss", "a.py(3): loss", "a.py(3): loss"))
    found = found_in(each_step(busy_steps) + samples, "python_overhead", tmp_path, interval_ms=20, has_states=True)
    assert "a.py:3 takes 100 % of this time (at least 37 % with 95 % confidence)." in found.advice
    assert dict(found.evidence)["min_share_of_line"] == pytest.approx(0.05 ** (1 / 3), abs=0.001)


def read_late(begin):
    """A step's samples of two lines of `busy_steps`: the first is always read late, the second in time."""
    yield from stack(LOOP_SAMPLES, begin + 20_000, 50_000, "a.py(3): loss")
    yield span(LATE_LINE, "stack_sample,state", LOOP_SAMPLES, begin + 20_000, 50_000)
    yield from stack(LOOP_SAMPLES, begin + 70_000, 20_000, "a.py(4): loss")


def test_late_sampled_line_has_no_certain_statement(tmp_path):
    found = found_in(each_step(busy_steps, read_late), "python_overhead", tmp_path)
    assert found.where.lines == ("a.py:3", "a.py:4")
    assert "a.py:3, or code shortly before it, takes 71 % of this time." in found.advice
    evidence = dict(found.evidence)
    assert (evidence["late_share_of_line"], evidence["min_share_of_line"]) == (1, 0)


def test_unknown_delays_of_samples_give_no_certain_statement(tmp_path):
    samples = list(seen_at("a.py(3): loss", "a.py(3): loss", "a.py(3): loss"))
    found = found_in(each_step(busy_steps) + samples, "python_overhead", tmp_path, interval_ms=20)
    assert "a.py:3, or code shortly before it, takes 100 % of this time." in found.advice
    assert not {"late_share_of_line", "min_share_of_line"} & {name for name, _ in found.evidence}


def test_certain_time_of_a_line_uses_samples_read_in_time(tmp_path):
    samples = list(seen_at(*["a.py(3): loss"] * 8))
    in_time = found_in(each_step(busy_steps) + samples, "python_overhead", tmp_path, interval_ms=20, has_states=True)
    late = [span(LATE_LINE, "stack_sample,state", LOOP_SAMPLES, STEP_US * step + 30_000, 20_000) for step in range(3)]
    some_late = found_in(
        each_step(busy_steps) + samples + late, "python_overhead", tmp_path, interval_ms=20, has_states=True
    )
    shares = [dict(found.evidence)["min_share_of_line"] for found in (in_time, some_late)]
    assert shares[1] < shares[0]
    assert "a.py:3 takes 100 % of this time (at least 69 % with 95 % confidence)." in in_time.advice
    assert "a.py:3 takes 100 % of this time (at least 22 % with 95 % confidence)." in some_late.advice


NUM_VALUES = 600


def reading_steps(begin):
    """Write a step that reads many values one by one, one of them delayed by the sampler; its backward pass has as many
    small operators."""
    yield span(f"ProfilerStep#{begin // STEP_US}", "user_annotation", LOOP, begin, STEP_US - 10)
    yield span("aten::mm", "cpu_op", LOOP, begin + 100, 19_000)
    for place in range(NUM_VALUES):
        at, delay = begin + 20_000 + 50 * place + 300 * (place > 200), 300 * (place == 200)
        yield span("aten::select", "cpu_op", LOOP, at, 6)
        yield span("aten::item", "cpu_op", LOOP, at + 16, 8 + delay)
        yield span("aten::_local_scalar_dense", "cpu_op", LOOP, at + 18, 5)
        backward = "autograd::engine::evaluate_function: SelectBackward0"
        yield span(backward, "cpu_op", LOOP, at + 35_000, 9)
        yield span("aten::zeros", "cpu_op", LOOP, at + 35_002, 6)


def seen_reading(begin):
    """One sample in a step: in the loop over values in three of four steps, then in the backward pass."""
    is_backward = begin // STEP_US % 4 == 0
    at, place = (60_000, "train.py(24): <module>") if is_backward else (30_200, "train.py(23): <module>")
    yield from stack(LOOP_SAMPLES, begin + at, 20_000, place)


def test_a_loop_that_calls_small_operators_is_named_by_the_line_that_calls_them(tmp_path):
    events = each_step(reading_steps, seen_reading)
    found = found_in(events, "small_kernels", tmp_path, interval_ms=20, has_states=True)
    assert found.where.lines == ("train.py:23",)
    assert "train.py:23 takes 100 % of this time" in found.advice


def test_values_read_one_by_one_are_reported_as_such(tmp_path):
    found = found_in(each_step(reading_steps, seen_reading), "small_kernels", tmp_path, interval_ms=20)
    assert found.title.startswith("Small operators: 600 .item() calls/step take ")
    assert ".tolist()" in found.advice
    assert dict(found.evidence)["num_items"] == 600


def test_values_read_by_operators_are_not_attributed_to_the_loop(tmp_path):
    def steps(begin):
        """Each value is read within an operator, as of ``torch.multinomial``."""
        for event in reading_steps(begin):
            yield event
            if event["name"] == "aten::item":
                yield event | {"name": "aten::multinomial", "ts": event["ts"] - 1, "dur": event["dur"] + 2}

    found = found_in(each_step(steps, seen_reading), "small_kernels", tmp_path, interval_ms=20)
    assert found.title.startswith("Small operators: 3,000/step under 10 us, ")
    assert "num_items" not in dict(found.evidence)


def test_values_read_by_the_optimizer_are_attributed_to_it(tmp_path):
    def steps(begin):
        yield from reading_steps(begin)
        yield span("Optimizer.step#LBFGS.step", "user_annotation", LOOP, begin + 19_900, 35_000)

    found = found_in(each_step(steps, seen_reading), "small_kernels", tmp_path, interval_ms=20)
    assert "a smaller history" in found.advice
    assert ".tolist()" not in found.advice


@pytest.mark.parametrize("has_states", [True, False])
def test_a_late_line_that_calls_a_library_is_hedged_itself(tmp_path, has_states):
    """The time may be that of the line before it, which the library's function says nothing of."""

    def loop(begin):
        yield from stack(LOOP_SAMPLES, begin, 20_000, "train.py(9): <module>")
        frames = "train.py(10): <module>", "torch/_ops.py(1279): __call__"
        yield from stack(LOOP_SAMPLES, begin + 20_000, 70_000, *frames)
        if has_states:
            yield span(LATE_LINE, "stack_sample,state", LOOP_SAMPLES, begin + 20_010, 69_980)

    found = found_in(each_step(busy_steps, loop), "python_overhead", tmp_path, has_states=has_states)
    assert "train.py:10, or code shortly before it, takes 100 % of this time." in found.advice


def reading_and_adding_steps(begin):
    """A step that reads values one by one, and then calls as many small operators at another line for longer."""
    yield from (event for event in reading_steps(begin) if event["ts"] < begin + 50_400)
    for place in range(NUM_VALUES):
        yield span("aten::add", "cpu_op", LOOP, begin + 52_000 + 75 * place, 9)


def seen_reading_in(*frames):
    def seen(begin):
        yield from stack(LOOP_SAMPLES, begin + 20_000, 30_300, *frames)
        yield from stack(LOOP_SAMPLES, begin + 50_300, 47_000, "train.py(30): <module>")

    return seen


def test_values_that_are_read_one_by_one_are_at_the_line_that_reads_them(tmp_path):
    events = each_step(reading_and_adding_steps, seen_reading_in("train.py(4): get_batch"))
    found = found_in(events, "small_kernels", tmp_path, interval_ms=1, has_states=True)
    assert found.title.startswith("Small operators: 600 .item() calls/step take ")
    assert found.where.lines == ("train.py:4",)
    assert "train.py:4 takes 100 % of this time" in found.advice


def test_values_read_one_by_one_in_a_library_are_attributed_to_it(tmp_path):
    frames = "train.py(4): step", "torch/metrics.py(7): update"
    events = each_step(reading_and_adding_steps, seen_reading_in(*frames))
    found = found_in(events, "small_kernels", tmp_path, interval_ms=1, has_states=True)
    assert "update of torch/metrics.py, a library, reads them. " in found.advice
