"""Where a library has the loop, such as a trainer, a finding names its function, not the user's line that calls it."""

import kinetoscope
from kinetoscope.analysis.cpu.library_calls import library_calls
from kinetoscope.analysis.windows.window_reader import read_windows
from support.sampled_traces import LOOP_SAMPLES, NUM_STEPS, STEP_US, busy_steps, each_step, found_in, stack

TRAINING = "train.py(30): <module>"
LIBRARY = ("json/__init__.py(8): dump", "json/encoder.py(18): encode")
TRAIN, INNER = "torch/trainer.py(100): train", "torch/trainer.py(210): _inner_loop"


def whole_run(*frames):
    """Frames that are there all the time."""
    return stack(LOOP_SAMPLES, 0, STEP_US * NUM_STEPS, *frames)


def logging_in_the_trainer(begin):
    """Most of the interval of Python in `busy_steps` is in a function of the trainer, in two of its lines."""
    yield from stack(LOOP_SAMPLES, begin + 20_000, 30_000, "torch/trainer.py(340): _log", *LIBRARY)
    yield from stack(LOOP_SAMPLES, begin + 50_000, 20_000, "torch/trainer.py(341): _log", *LIBRARY)
    yield from stack(LOOP_SAMPLES, begin + 70_000, 20_000, "torch/trainer.py(360): _maybe_save")


def test_library_function_is_named_and_not_the_user_line_in_every_sample(tmp_path):
    events = [*whole_run(TRAINING, TRAIN, INNER), *each_step(busy_steps, logging_in_the_trainer)]
    found = found_in(events, "python_overhead", tmp_path, has_states=True)
    assert found.where.lines == ("torch/trainer.py:340",)
    assert "torch/trainer.py:340 (_log) takes most of this time." in found.advice
    assert "train.py:30" not in found.advice


def test_no_line_is_named_if_samples_may_be_late(tmp_path):
    events = [*whole_run(TRAINING, TRAIN, INNER), *each_step(busy_steps, logging_in_the_trainer)]
    found = found_in(events, "python_overhead", tmp_path)
    assert found.where.lines == ()
    assert "The line is unknown: every sample shows the same call into a library" in found.advice


def spread(begin):
    """The same interval in seven functions of the library."""
    for place in range(7):
        name = f"torch/callbacks.py({10 * place}): on_step_{place}"
        yield from stack(LOOP_SAMPLES, begin + 20_000 + 10_000 * place, 10_000, name)


def test_no_library_function_is_named_without_most_of_the_time(tmp_path):
    """Those around them are in every sample too."""
    events = [*whole_run(TRAINING, TRAIN, INNER), *each_step(busy_steps, spread)]
    found = found_in(events, "python_overhead", tmp_path, has_states=True)
    assert found.where.lines == ()


def test_functions_with_little_of_the_time_are_not_in_the_summary_of_a_window(tmp_path):
    found_in([*whole_run(TRAINING, TRAIN, INNER), *each_step(busy_steps, spread)], "python_overhead", tmp_path)
    (window,) = read_windows(kinetoscope.load(tmp_path / "rank0.json", cache=False))
    calls = library_calls(window, {"python": window.steps.select("begin", "end")})
    assert calls["function"].drop_nulls().to_list() == []


def test_a_callback_of_the_users_own_is_named_and_not_the_trainer_that_calls_it(tmp_path):
    def callback(begin):
        yield from stack(LOOP_SAMPLES, begin + 20_000, 70_000, "torch/callbacks.py(9): call", "mine.py(7): on_step")

    events = [*whole_run(TRAINING, TRAIN, INNER), *each_step(busy_steps, callback)]
    found = found_in(events, "python_overhead", tmp_path)
    assert found.where.lines == ("mine.py:7",)
    assert "mostly in" not in found.advice


def test_a_loop_of_the_users_own_has_only_its_line_named(tmp_path):
    def loop(begin):
        yield from stack(LOOP_SAMPLES, begin, 20_000, "train.py(9): <module>")
        yield from stack(LOOP_SAMPLES, begin + 20_000, 70_000, "train.py(10): <module>", "torch/log.py(5): write")
        yield from stack(LOOP_SAMPLES, begin + 90_000, 10_000, "train.py(11): <module>")

    found = found_in(each_step(busy_steps, loop), "python_overhead", tmp_path)
    assert found.where.lines == ("train.py:10",)


def test_a_line_of_the_loop_that_is_sampled_in_all_steps_is_no_call_of_a_trainer(tmp_path):
    def loop(begin):
        yield from stack(LOOP_SAMPLES, begin, 20_000, "train.py(5): train_step", "torch/tensor.py(9): backward")
        yield from stack(LOOP_SAMPLES, begin + 20_000, 80_000, "torch/nn/module.py(7): _call_impl")

    found = found_in([*whole_run("train.py(10): <module>"), *each_step(busy_steps, loop)], "python_overhead", tmp_path)
    assert found.where.lines == ("train.py:10",)


def test_a_users_line_in_which_no_library_was_seen_has_no_function(tmp_path):
    found = found_in([*whole_run(TRAINING), *each_step(busy_steps)], "python_overhead", tmp_path)
    assert found.where.lines == ("train.py:30",)
