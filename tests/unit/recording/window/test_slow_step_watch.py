"""Slow steps of a run whose clock is a fake one: who gets them, what is in them, and what they leave behind."""

import contextlib
import logging
import os
import threading

import pytest

import kinetoscope
from kinetoscope import Profiler, TraceHandler, cyclic_schedule
from kinetoscope.errors import SettingsError
from kinetoscope.formats.slow_steps import read_slow_steps
from kinetoscope.handlers.json_trace_handler import JSONTraceHandler
from kinetoscope.pulse.layout import Phase
from kinetoscope.testing import FakeClock

MS = 1_000_000
NEVER = cyclic_schedule(skip_first=10**9, per="run")


class SlowStepHandler(TraceHandler):
    def __init__(self, error=None):
        self.cycles, self.slow, self.error = [], [], error

    def process_cycle(self, cycle):
        self.cycles.append(cycle)

    def process_slow_step(self, cycle):
        if self.error is not None:
            raise self.error
        self.slow.append(cycle)


def train(handler, slow, num_steps=200, schedule=NEVER, **settings):
    """Return a run of steps of 10 ms; ``slow`` says how many ms some of them take."""
    clock = FakeClock()
    settings = {"slow_steps": True, "quiet": True} | settings
    with Profiler(schedule, handler, clock=clock, **settings) as profiler:
        for step in profiler.batches(range(num_steps)):
            clock.advance(slow.get(step, 10) * MS)
    return clock


def steps_of(handler):
    return [cycle.slow_step.step for cycle in handler.slow]


def test_handlers_get_slow_steps_as_windows_of_one_step():
    handler = SlowStepHandler()
    train(handler, {150: 300, 177: 40})
    assert steps_of(handler) == [150, 177]
    cycle = handler.slow[0]
    slow = cycle.slow_step
    assert (slow.duration_ns, slow.usual_ns, slow.excess_ns) == (300 * MS, 10 * MS, 290 * MS)
    assert slow.phase == Phase.OTHER
    assert slow.begin_ns == cycle.begin.unix_ns
    assert cycle.end.monotonic_ns - cycle.begin.monotonic_ns == 300 * MS
    (batch,) = [event for event in cycle.events if event.name == "event/batch"]
    assert (batch.begin_ns, batch.end_ns) == (cycle.begin.monotonic_ns, cycle.end.monotonic_ns)
    assert batch.args == {"epoch": 0, "batch": 150}
    assert handler.cycles == []


def test_the_wait_for_data_is_the_phase_of_a_step_that_waited():
    handler, clock = SlowStepHandler(), FakeClock()

    def loader():
        for step in range(200):
            clock.advance((90 if step == 120 else 1) * MS)
            yield step

    with Profiler(NEVER, handler, clock=clock, slow_steps=True, quiet=True) as profiler:
        for _ in profiler.batches(loader()):
            clock.advance(9 * MS)
    (cycle,) = handler.slow
    assert cycle.slow_step.phase == Phase.DATA_WAIT
    assert (cycle.slow_step.phase_ns, cycle.slow_step.phase_usual_ns) == (90 * MS, 1 * MS)
    (wait,) = [event for event in cycle.events if event.name == "event/data_wait"]
    assert wait.end_ns - wait.begin_ns == 90 * MS


def spans_of(cycle):
    """Return the user's spans of a slow step: name, categories, begin and duration in ms, and how many others it is
    within."""
    begin_ns = cycle.begin.monotonic_ns
    (thread,) = cycle.threads
    assert (thread.tid, thread.is_main) == (threading.get_native_id(), True)
    spans = [(cycle.names[record.name], record) for record in thread.records()]
    return [
        (name.name, name.categories, (span.begin - begin_ns) / MS, (span.end - span.begin) / MS, span.depth)
        for name, span in spans
        if name.name != "event/dataloader"
    ]


def test_the_markers_of_a_slow_step_are_in_its_window_however_they_are_used():
    handler, clock = SlowStepHandler(), FakeClock()
    library = kinetoscope.marker("parse", categories=("input",))

    @kinetoscope.marker("augment")
    def augment():
        clock.advance(2 * MS)

    def each_part(marker):
        with marker:
            clock.advance(1 * MS)
            yield

    with Profiler(NEVER, handler, clock=clock, slow_steps=True, quiet=True) as profiler:
        tokens, by_hand = profiler.marker("tokens"), profiler.marker("by hand")
        for step in profiler.batches(range(200)):
            with profiler.marker("outer"), contextlib.ExitStack() as stack:
                augment()
                with library:
                    clock.advance((300 if step == 150 else 1) * MS)
                token = tokens.begin()
                by_hand.start()
                clock.advance(1 * MS)
                by_hand.finish()
                tokens.end(token)
                stack.enter_context(profiler.marker("stacked"))
                list(each_part(profiler.marker("generator")))
    (cycle,) = handler.slow
    assert cycle.slow_step.step == 150
    assert spans_of(cycle) == [
        ("augment", (), 0, 2, 1),
        ("parse", ("input",), 2, 300, 1),
        ("by hand", (), 302, 1, 2),
        ("tokens", (), 302, 1, 1),
        ("generator", (), 303, 1, 2),
        ("stacked", (), 303, 1, 1),
        ("outer", (), 0, 304, 0),
    ]
    assert handler.cycles == []


def test_markers_of_other_threads_and_of_other_steps_are_in_no_slow_step():
    handler, clock = SlowStepHandler(), FakeClock()

    def work():
        with kinetoscope.marker("another thread"):
            clock.advance(1 * MS)

    with Profiler(NEVER, handler, clock=clock, slow_steps=True, quiet=True) as profiler:
        across = profiler.marker("across steps")
        for step in profiler.batches(range(200)):
            if step == 149:
                across.start()
            with profiler.marker(f"step {step}"):
                clock.advance((300 if step == 150 else 10) * MS)
            if step == 150:
                thread = threading.Thread(target=work)
                thread.start()
                thread.join()
                across.finish()
    (cycle,) = handler.slow
    assert [name for name, *_ in spans_of(cycle)] == ["step 150"]


@pytest.mark.parametrize("is_known", [False, True])
def test_a_span_that_another_thread_began_is_in_no_slow_step_wherever_it_ends(is_known):
    handler, clock = SlowStepHandler(), FakeClock()
    with Profiler(NEVER, handler, clock=clock, slow_steps=True, quiet=True) as profiler:
        for step in profiler.batches(range(200)):
            stack = contextlib.ExitStack()
            if step == 10 and is_known:
                profiler.marker("elsewhere").end(profiler.marker("elsewhere").begin())
            if step == 150:
                thread = threading.Thread(target=stack.enter_context, args=[profiler.marker("elsewhere")])
                thread.start()
                thread.join()
            with stack, profiler.marker("work"):
                clock.advance((300 if step == 150 else 10) * MS)
    (cycle,) = handler.slow
    assert [name for name, *_ in spans_of(cycle)] == ["work"]


def test_a_window_after_steps_that_were_watched_has_its_own_markers_only():
    handler, clock = SlowStepHandler(), FakeClock()
    schedule = cyclic_schedule(skip_first=100, warmup=0, active=2, per="run")
    with Profiler(schedule, handler, clock=clock, slow_steps=True, quiet=True) as profiler:
        entered = profiler.marker("entered before")
        for step in profiler.batches(range(110)):
            if step == 99:
                entered.start()
            with profiler.marker("work"):
                clock.advance(10 * MS)
            if step == 100:
                entered.finish()
    (cycle,) = handler.cycles
    names = [cycle.names[span.name].name for thread in cycle.threads for span in thread.records()]
    assert names.count("work") == 2
    assert "entered before" not in names


def test_step_with_very_many_spans_keeps_the_first_and_counts_the_others():
    handler, clock = SlowStepHandler(), FakeClock()
    with Profiler(NEVER, handler, clock=clock, slow_steps=True, quiet=True) as profiler:
        part = profiler.marker("part")
        for step in profiler.batches(range(200)):
            for _ in range(3000 if step == 150 else 10):
                with part:
                    clock.advance(MS)
    (cycle,) = handler.slow
    assert len(spans_of(cycle)) == 255  # and the wait for data
    assert cycle.contributions.events.num_left_out >= 3000 - 255


def test_without_slow_steps_nothing_is_watched():
    handler = SlowStepHandler()
    train(handler, {150: 300}, slow_steps=False)
    assert handler.slow == []


def test_recorded_steps_are_not_slow_nor_is_the_one_after_them():
    handler = SlowStepHandler()
    schedule = cyclic_schedule(skip_first=100, warmup=0, active=5, per="run")
    train(handler, {102: 300, 104: 500, 105: 500, 106: 300}, schedule=schedule)
    assert steps_of(handler) == [106]
    assert len(handler.cycles) == 1


@pytest.mark.parametrize("error", [OSError(28, "No space left"), ValueError("wrong")])
def test_a_handler_that_cannot_save_slow_steps_says_so_once_and_still_gets_cycles(error, caplog):
    handler, other = SlowStepHandler(error), SlowStepHandler()
    schedule = cyclic_schedule(skip_first=190, active=2, per="run")
    train([handler, other], {100: 300, 120: 300, 150: 300}, schedule=schedule)
    messages = [record.message for record in caplog.records if "slow step" in record.message]
    assert len(messages) == 1
    assert "left out" in messages[0]
    assert len(handler.cycles) == 1
    assert steps_of(other) == [100, 120, 150]


def test_with_strict_the_error_is_raised_at_the_end():
    with pytest.raises(ValueError, match="wrong"):
        train(SlowStepHandler(ValueError("wrong")), {150: 300}, strict=True)


def test_names_and_lines_are_redacted():
    handler = SlowStepHandler()
    train(handler, {150: 300}, redact=lambda text: "x" if "test_slow" in text or "Main" in text else text)
    (cycle,) = handler.slow
    assert "test_slow" not in f"{cycle.events} {cycle.slow_step}"
    assert "MainThread" not in f"{cycle.tracks}"


def test_slow_steps_is_true_or_false():
    with pytest.raises(SettingsError, match="slow_steps must be True or False"):
        Profiler(NEVER, slow_steps="always")


def test_files_of_one_name_are_disambiguated_and_nothing_else_is_written(tmp_path):
    for _ in range(2):  # a second run into the same folder has the same steps
        handler = JSONTraceHandler(str(tmp_path / "run/traces"), overwrite=True)
        train(handler, {150: 300})
    kept = read_slow_steps(tmp_path / "run")
    assert [(slow.step, slow.path) for slow in kept] == [(150, "ba150-rank0.json"), (150, "ba150-rank0.2.json")]
    assert kept[0].start != kept[1].start
    names = {path.name for path in (tmp_path / "run/slow_steps").iterdir()}
    assert names == {"ba150-rank0.json", "ba150-rank0.2.json", "rank0.jsonl"}


def test_a_run_without_slow_steps_leaves_no_folder(tmp_path):
    train(JSONTraceHandler(str(tmp_path / "run/traces")), {})
    assert not (tmp_path / "run/slow_steps").exists()


def test_a_link_in_place_of_the_folder_is_not_followed(tmp_path, caplog):
    (tmp_path / "run").mkdir()
    (tmp_path / "elsewhere").mkdir()
    os.symlink(tmp_path / "elsewhere", tmp_path / "run/slow_steps")
    train(JSONTraceHandler(str(tmp_path / "run/traces")), {150: 300})
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert any("could not save a slow step" in record.message for record in caplog.records)


def test_error_on_a_kinetoscope_thread_is_reported_and_training_continues(caplog, monkeypatch):
    def fail(*_):
        raise RuntimeError("planted")

    monkeypatch.setattr("kinetoscope.recording.window.slow_step_watch.read_anchor", fail)
    handler = SlowStepHandler()
    with caplog.at_level(logging.WARNING):
        clock = train(handler, {150: 300})
    assert clock.monotonic_ns() > 2000 * MS
    assert handler.slow == []
    assert any("Slow steps are not watched any more: RuntimeError: planted" in line.message for line in caplog.records)


def test_a_second_run_in_the_process_watches_too_and_no_thread_stays():
    for _ in range(3):
        handler = SlowStepHandler()
        train(handler, {150: 300})
        assert steps_of(handler) == [150]
    assert not [thread for thread in threading.enumerate() if "slow" in thread.name]


def test_a_forked_child_leaves_slow_steps_to_its_parent():
    handler, clock = SlowStepHandler(), FakeClock()
    with Profiler(NEVER, handler, clock=clock, slow_steps=True, quiet=True) as profiler:
        for step in profiler.batches(range(200)):
            clock.advance((300 if step == 150 else 10) * MS)
            if step == 100:
                pid = os.fork()
                if not pid:
                    clock.advance(10**10)
                    profiler.step()
                    profiler.close()
                    os._exit(7)
                assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert steps_of(handler) == [150]
