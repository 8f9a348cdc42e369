"""All steps of a run: their times, since when they are slower, and whether the recorded ones are outliers."""

import random
import re
from dataclasses import replace

import msgspec
import pytest

import kinetoscope
from kinetoscope import JSONTraceHandler, Profiler, cyclic_schedule
from kinetoscope.analysis.steps.all_steps import build_period_notes, describe_abnormal_recording, summarize_all_steps
from kinetoscope.analysis.steps.steps import StepRow
from kinetoscope.pulse.pulses import find_pulses
from kinetoscope.report.descriptions import describe_all_steps
from kinetoscope.testing import FakeClock

MS = 1_000_000


def run_of(folder, durations_ms, recorded=range(10, 14)):
    """Write the pulse of a run with these step times, some steps recorded, and read it back."""
    clock = FakeClock(tick_ns=0)
    schedule = cyclic_schedule(skip_first=recorded.start, warmup=0, active=len(recorded), per="run")
    with Profiler(schedule, JSONTraceHandler(str(folder / "traces")), clock=clock, quiet=True) as profiler:
        for duration_ms in durations_ms:
            clock.advance(round(duration_ms * MS))
            profiler.step()
    return find_pulses(folder)[0]


def about(folder, durations_ms, recorded=range(10, 14)):
    pulses = run_of(folder, durations_ms, recorded)
    rows = [row for row in pulses[0].rows if row.step in recorded]
    steps = [StepRow(rank=0, step=row.step, begin_ns=row.begin_ns, duration_ns=row.duration_ns) for row in rows]
    return summarize_all_steps(pulses, steps, len(steps))


def noisy(mean_ms, count, seed=0):
    chance = random.Random(seed)
    return [mean_ms * chance.gauss(1, 0.04) for _ in range(count)]


def test_all_steps_are_counted_and_timed_though_few_are_recorded(tmp_path):
    summary = about(tmp_path, [5.0] * 299 + [50.0])
    assert (summary["num_steps"], summary["num_recorded"], summary["slowest_step"]) == (300, 4, 299)
    assert summary["slowest_phase"] is None
    assert (summary["mean_ns"], summary["max_duration_ns"]) == (pytest.approx(5.15 * MS), 50 * MS)
    assert sum(piece["num_steps"] for piece in summary["pieces"]) == 300
    assert [piece["step"] for piece in summary["pieces"] if piece["num_recorded"]] == [10, 12]
    assert describe_all_steps(summary) == ("All 300 steps: 5.15 ms on average on the CPU, slowest 50.0 ms (step 299).")


def test_the_slowest_step_says_which_phase_made_it_slow(tmp_path):
    clock = FakeClock(tick_ns=0)
    handler = JSONTraceHandler(str(tmp_path / "traces"))
    with Profiler(cyclic_schedule(skip_first=10**6), handler, clock=clock, quiet=True) as profiler:
        for batch in profiler.batches(range(120)):
            if batch % 30 == 29:
                with profiler.eval():
                    clock.advance((20 + batch) * MS)
            clock.advance(50 * MS)
    summary = summarize_all_steps(find_pulses(tmp_path)[0], [], 0)
    assert (summary["slowest_step"], summary["slowest_phase"]) == (119, "evaluation")
    assert "slowest 189.0 ms (step 119, mostly evaluation)." in describe_all_steps(summary)


def test_the_plot_has_evaluations_checkpoints_and_earlier_attempts(tmp_path):
    clock = FakeClock(tick_ns=0)
    handler = JSONTraceHandler(str(tmp_path / "traces"))
    with Profiler(cyclic_schedule(skip_first=10**6), handler, clock=clock, quiet=True) as profiler:
        for batch in profiler.batches(range(60)):
            if batch % 30 == 29:
                with profiler.eval():
                    clock.advance(20 * MS)
            clock.advance(50 * MS)
    pulses = find_pulses(tmp_path)[0]
    restarted = replace(pulses[0], header=restarted_header(pulses[0].header))

    summary = summarize_all_steps([restarted], [], 0, pulses)

    assert summary["num_steps"] == 60
    assert [(piece["attempt"], piece["step"]) for piece in summary["pieces"] if piece["evaluation_ns"]] == [
        (0, 29),
        (0, 59),
        (1, 29),
        (1, 59),
    ]
    assert {piece["checkpoint_ns"] for piece in summary["pieces"]} == {None}, "without torch no checkpoint is seen"


def restarted_header(header):
    attempt = replace(header.process.attempt, restart=1)
    return replace(header, process=msgspec.structs.replace(header.process, attempt=attempt))


def test_a_run_that_gets_slower_says_since_when(tmp_path):
    summary = about(tmp_path, noisy(10, 1200) + noisy(11, 800, seed=1))
    assert abs(summary["changed_at"] - 1200) <= 40
    assert summary["change"] == pytest.approx(0.1, abs=0.02)
    assert (
        f"Since step {summary['changed_at']:,} it takes {100 * summary['change']:.0f} % longer than before."
        in describe_all_steps(summary)
    )


@pytest.mark.parametrize("last_recorded", [60, 20])
def test_slower_steps_while_recording_and_saving_are_no_change(tmp_path, last_recorded):
    durations = noisy(10, 400)
    durations[10:60] = noisy(16, 50)
    summary = about(tmp_path, durations, recorded=range(10, last_recorded))
    assert (summary["changed_at"], summary["change"]) == (None, None)


@pytest.mark.parametrize("what", ["warm-up", "single slow ones", "slow now and then", "nothing"])
def test_a_run_that_only_seems_to_change_says_nothing(tmp_path, what):
    durations = noisy(10, 2000)
    if what == "warm-up":
        durations[:15] = [100] * 15
    elif what == "single slow ones":
        durations[1500:1510] = [100] * 10
    elif what == "slow now and then":
        durations = [12 if place // 250 % 2 else 10 for place in range(2000)]
    summary = about(tmp_path, durations)
    assert (summary["changed_at"], summary["change"]) == (None, None)


def test_unrepresentative_recorded_steps_are_mentioned_in_each_finding(tmp_path):
    durations = noisy(10, 400)
    durations[10:14] = noisy(15, 4)
    summary = about(tmp_path, durations)
    assert summary["is_abnormal"]
    assert summary["recorded_change"] == pytest.approx(0.5, abs=0.05)
    assert (
        describe_abnormal_recording(summary)
        == f"It rests on recorded steps, which took {100 * summary['recorded_change']:.0f} % longer than the others."
    )
    assert describe_abnormal_recording(summary, "The recorded steps") in describe_all_steps(summary)


def test_short_run_reports_too_that_recorded_steps_differ_from_most(tmp_path):
    """As where the first epoch reads what the others have in memory."""
    durations = [*noisy(37, 20), *noisy(1, 40)]
    assert about(tmp_path / "first", durations, range(2, 12))["is_abnormal"]
    assert not about(tmp_path / "few", durations[:25], range(2, 12))["is_abnormal"]
    assert not about(tmp_path / "alike", noisy(10, 60), range(2, 12))["is_abnormal"]


def test_recorded_steps_that_mostly_wait_for_their_batches_are_compared_too(tmp_path):
    """The wait for a batch is a part of a step in a pulse, and before the step in a recording."""
    pulses = run_of(tmp_path, [*noisy(37, 20), *noisy(1, 100)], range(2, 12))
    rows = [row for row in pulses[0].rows if row.step in range(2, 12)]
    waits = [(row, row.duration_ns * 9 // 10) for row in rows]
    steps = [
        StepRow(rank=0, step=row.step, begin_ns=row.begin_ns + wait_ns, duration_ns=row.duration_ns - wait_ns)
        for row, wait_ns in waits
    ]
    summary = summarize_all_steps(pulses, steps, len(steps))
    assert summary["is_abnormal"]
    assert re.fullmatch(r"They took 9\.\d times as long as the others\.", describe_abnormal_recording(summary, "They"))


def test_recorded_steps_like_the_others_are_no_outliers_nor_is_noise(tmp_path):
    durations = noisy(10, 400)
    assert not about(tmp_path / "alike", durations)["is_abnormal"]
    wild = random.Random(3).choices([5, 40], k=400)
    wild[10:14] = [40, 40, 5, 40]
    assert not about(tmp_path / "chance", wild)["is_abnormal"]


@pytest.mark.parametrize("duration_ms", [5.0, 0.0])
def test_fully_recorded_run_or_run_with_zero_step_times_compares_nothing(tmp_path, duration_ms):
    for name, recorded in (("all", range(150)), ("some", range(10, 14))):
        summary = about(tmp_path / name, [duration_ms] * 150, recorded)
        assert summary["num_steps"] == 150
        assert not summary["is_abnormal"]


def test_recorded_steps_cannot_be_compared_once_summed_in_blocks(tmp_path):
    summary = about(tmp_path, [5.0] * 4500)
    assert (summary["recorded_change"], summary["is_abnormal"]) == (None, False)


def test_the_report_has_it_from_the_folder_of_the_run_or_of_its_traces(tmp_path):
    run_of(tmp_path, noisy(3, 200))
    reports = [kinetoscope.analyze(source) for source in (tmp_path, tmp_path / "traces")]
    assert [report.run["all_steps"]["num_steps"] for report in reports] == [200, 200]
    for source in (tmp_path, tmp_path / "traces" / "merged_trace.json"):
        frame = kinetoscope.load(source).all_steps
        total_ns = pytest.approx(200 * reports[0].run["all_steps"]["mean_ns"])
        assert (frame.height, frame["duration_ns"].sum()) == (200, total_ns)


def test_a_run_without_a_pulse_knows_only_its_recorded_steps(tmp_path):
    run_of(tmp_path, noisy(3, 50))
    for path in (tmp_path / "pulse").glob("*.pulse"):
        path.unlink()
    assert kinetoscope.analyze(tmp_path).run["all_steps"] is None
    frame = kinetoscope.load(tmp_path).all_steps
    assert (frame.height, "duration_ns" in frame.columns) == (0, True)


# -- steps that were not recorded


def test_the_step_after_a_window_is_neither_recorded_nor_like_the_others(tmp_path):
    """In it a rank waits for others that close their windows."""
    durations = noisy(5, 60)
    durations[10:14] = noisy(15, 4)
    durations[14] = 400.0
    summary = about(tmp_path, durations)
    assert summary["recorded_ns"] == pytest.approx(15 * MS, rel=0.1)
    assert summary["unrecorded_ns"] == pytest.approx(5 * MS, rel=0.1)
    assert summary["is_abnormal"]


def test_the_median_of_too_few_unrecorded_steps_is_unknown(tmp_path):
    assert about(tmp_path, [5.0] * 25)["unrecorded_ns"] is None


def steps_of(pulses, recorded):
    rows = [row for row in pulses[0].rows if row.step in recorded]
    return [
        StepRow(rank=0, step=row.step, begin_ns=row.begin_ns, duration_ns=row.duration_ns, between_ns=0) for row in rows
    ]


@pytest.mark.parametrize(("every", "num_recorded", "is_noted"), [(20, 10, True), (20, 25, False), (1000, 10, False)])
def test_a_window_that_is_shorter_than_the_period_of_the_loop_is_noted(tmp_path, every, num_recorded, is_noted):
    durations = [20.0 if step % every == 19 else 5.0 for step in range(400)]
    pulses = run_of(tmp_path, durations, range(30, 30 + num_recorded))
    notes = build_period_notes(pulses, steps_of(pulses, range(30, 30 + num_recorded)))
    assert [note.startswith("Every 20th step") for note in notes] == [True] * is_noted
