"""Rounds of starts: their order, their limits and what becomes of rows, with starts that take no time."""

import errno
import random
from types import SimpleNamespace

import pytest

from kinetoscope.autoinstrument.trial_files import ParameterSummary, RankResult
from kinetoscope.errors import KinetoscopeError
from kinetoscope.experiments.experiment import ExperimentRun, Options
from kinetoscope.experiments.plan import MAX_ROWS, Request
from kinetoscope.experiments.start import Command, InterruptedTrialError, StartResult
from kinetoscope.variants.registry import Variant


class Machine:
    """Starts of a program with steps of 10 ms times the ratios of its variants, which vary by ``sigma``."""

    def __init__(self, ratios, sigma=0.001, duration_s=1.0):
        self.ratios, self.sigma, self.duration_s = ratios, sigma, duration_s
        self.random = random.Random(5)
        self.failing, self.failure_s = {}, 0.0
        self.slow = {}
        self.starts, self.limits_s = [], []
        self.num_starts_until_full = 1000
        self.peaks_bytes, self.lasts = {}, {}
        self.now_s = 0.0

    def run_start(self, command, settings, *, timeout_s, is_interrupted):
        names = tuple(one.name for one in settings.variants)
        self.starts.append((names, settings.compares_results))
        self.limits_s.append(timeout_s)
        self.now_s += self.duration_s
        if is_interrupted():
            raise InterruptedTrialError
        if len(self.starts) > self.num_starts_until_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        if reason := self.failing.get((names, len(self.starts))) or self.failing.get(names):
            self.now_s += self.failure_s
            duration_s = self.duration_s + self.failure_s
            return StartResult([], duration_s, reason, "first line\nlast line", "RuntimeError: no memory")
        step_ns = 1e7 * self.random.lognormvariate(0, self.sigma)
        for name in names:
            step_ns *= self.ratios[name]
        step_ns *= self.slow.get(len(self.starts), 1.0)
        last = self.lasts.get(names, 1.0)
        rank = RankResult(
            rank=0,
            world_size=1,
            local_world_size=1,
            pid=1,
            step_times_ns=[round(step_ns)] * settings.num_steps,
            num_applied=dict.fromkeys(names, 1),
            peak_bytes=self.peaks_bytes.get(len(self.starts)),
            parameters=ParameterSummary("-".join(names) if "other" in names else str(last), [[0.0]], [[last]]),
        )
        return StartResult([rank], self.duration_s)


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Return a function that measures the variants of a machine; it returns the result and the reported lines."""

    def run(machine, *, max_s=600.0, num_rounds=3, is_interrupted=lambda: False):
        monkeypatch.setattr("kinetoscope.experiments.experiment.run_start", machine.run_start)
        monkeypatch.setattr("kinetoscope.experiments.experiment.delete_start", lambda folder, keeps_log: None)
        clock = SimpleNamespace(monotonic=lambda: machine.now_s, time=lambda: 0.0)
        monkeypatch.setattr("kinetoscope.experiments.experiment.time", clock)
        requests = [
            Request(Variant(name, lambda value, applied: None, lambda facts: [True], f"{name}()"), is_named=True)
            for name in machine.ratios
        ]
        lines = []
        experiment = ExperimentRun(
            Command(["python"], tmp_path),
            requests,
            Options(num_steps=20, num_rounds=num_rounds, max_s=max_s),
            tmp_path,
            is_interrupted=is_interrupted,
            report=lines.append,
        )
        return experiment.run(), lines

    return run


def verdicts(experiment):
    return {" + ".join(one.name for one in row.variants): row.verdict for row in experiment.rows}


def test_variants_that_gain_are_measured_in_pairs_and_the_others_are_not(run):
    experiment, _ = run(Machine({"one": 0.8, "two": 0.7, "slow": 1.5, "nothing": 1.0}))
    assert verdicts(experiment) == {
        "two + one": "faster",
        "two": "faster",
        "one": "faster",
        "nothing": "same",
        "slow": "slower",
    }
    pair = experiment.rows[0]
    assert pair.change == pytest.approx(0.56 - 1, abs=0.02)
    assert pair.code == "two()\none()"


def test_a_note_names_the_values_that_have_no_row(run):
    experiment, _ = run(Machine({f"variant{number}": 1.0 for number in range(10)}))
    assert len(experiment.rows) == MAX_ROWS
    (note,) = experiment.notes
    assert note.startswith("Not measured, since there are at most 8 rows: variant8=True, variant9=True. ")


def test_pairs_are_tried_on_a_noisy_machine_before_the_time_is_spent_on_narrow_intervals(run):
    experiment, _ = run(Machine({"one": 0.5, "two": 0.5}, sigma=0.04), max_s=60)
    assert [verdict for label, verdict in verdicts(experiment).items() if "+" in label] == ["faster"]
    assert experiment.num_rounds > 3 + 3
    assert 50 < experiment.duration_s <= 60


def test_each_line_has_the_time_that_is_left_at_least_and_at_most(run):
    _, lines = run(Machine({"one": 1.0}, duration_s=30.0), max_s=600)
    assert lines[0] == "start 1: unmodified, not counted: 10.0 ms/step (30 s; at most 10 min left)"
    # 11 more starts: eight of the three rounds, and three for the results
    assert lines[1].endswith("(30 s; 6 min to 9 min left)")
    assert lines[-1].endswith("(30 s; at most 4 min left)")


def test_unmodified_starts_that_differ_three_times_end_the_experiment(run):
    machine = Machine({"one": 0.8})
    machine.slow = {3: 3.5}
    experiment, lines = run(machine)
    assert (experiment.is_complete, len(lines), experiment.num_starts) == (False, 3, 3)
    assert verdicts(experiment) == {"one": "unsure"}
    (note,) = experiment.notes
    assert note.startswith("Stopped early: starts of the unmodified program took 9.98 to 35.0 ms/step, so that no fix")
    assert "use an idle machine" in note


def test_starts_that_differ_twice_are_measured(run):
    machine = Machine({"one": 0.8})
    machine.slow = {3: 2.0}
    experiment, _ = run(machine)
    assert experiment.num_rounds >= 3
    assert not any("Stopped" in note for note in experiment.notes)


def test_results_are_compared_of_what_is_not_slower_in_starts_that_are_not_timed(run):
    machine = Machine({"one": 0.8, "other": 0.7, "slow": 1.5})
    experiment, lines = run(machine)
    compared = [names for names, compares in machine.starts if compares]
    assert compared[:2] == [(), ()]
    assert set(compared[2:]) == {("one",), ("other",), ("other", "one")}
    results = {" + ".join(one.name for one in row.variants): row.results for row in experiment.rows}
    assert results == {"one": "equal", "other": "within_tolerance", "other + one": "within_tolerance", "slow": None}
    assert [line for line in lines if "for its results" in line] == lines[-len(compared) :]


def test_augmentation_is_a_possible_reason_only_for_a_variant_of_the_loader(run):
    machine = Machine({"DataLoader": 0.8, "fused": 0.7})
    machine.lasts = {("DataLoader",): 9.0, ("fused",): 9.0}
    experiment, _ = run(machine)
    reasons = {row.label: row.results_reason for row in experiment.rows if len(row.variants) == 1}
    reason = "parameters differ by 800 % of the distance that they moved"
    assert reasons == {
        "DataLoader=True": f"{reason}, possibly from random augmentation in the workers",
        "fused=True": reason,
    }


def test_each_round_has_two_unmodified_starts_in_an_order_that_rotates(run):
    machine = Machine({"one": 1.0, "two": 1.0})
    run(machine)
    names = [names for names, compares in machine.starts if not compares]
    assert names[0] == ()
    rounds = [names[1 + 4 * number : 5 + 4 * number] for number in range(3)]
    assert [sorted(one) for one in rounds] == [[(), (), ("one",), ("two",)]] * 3
    assert len({tuple(one) for one in rounds}) == 3


def test_a_variant_that_fails_is_a_row_with_its_reason_and_is_not_started_again(run):
    machine = Machine({"one": 0.8, "crash": 1.0})
    machine.failing["crash",] = "it ended with exit code 1 before 30 training steps"
    experiment, _ = run(machine)
    assert verdicts(experiment) == {"one": "faster", "crash": "failed"}
    reason = "it ended with exit code 1 before 30 training steps: RuntimeError: no memory"
    assert experiment.rows[-1].reason == reason
    assert machine.starts.count((("crash",), False)) == 1


def test_a_variant_that_fails_without_an_exit_code_has_the_end_of_its_log(run):
    machine = Machine({"crash": 1.0})
    machine.failing["crash",] = "it was killed"
    experiment, _ = run(machine)
    assert experiment.rows[0].reason == "it was killed; its log ends with: RuntimeError: no memory"


def test_a_first_start_that_fails_is_an_error_with_the_last_lines(run):
    machine = Machine({"one": 0.8})
    machine.failing[()] = "it ended with exit code 1 before 30 training steps"
    with pytest.raises(KinetoscopeError) as caught:
        run(machine)
    first, where, *tail = str(caught.value).splitlines()
    assert first == (
        "The command could not be measured: it ended with exit code 1 before 30 training steps: "
        "RuntimeError: no memory."
    )
    assert where.startswith("The last lines of its output, ")
    assert where.endswith("/001/log:")
    assert tail == ["first line", "last line"]


def test_when_the_time_is_over_what_is_known_is_the_result(run):
    experiment, _ = run(Machine({"one": 0.8}, duration_s=10.0), max_s=65)
    assert not experiment.is_complete
    assert experiment.notes == ["The time was over: pass a larger --max-minutes."]
    (row,) = experiment.rows
    assert (row.verdict, row.reason) == ("unsure", "no interval: 2 rounds are needed, 1 was completed")


def test_a_start_ends_when_the_time_is_over(run):
    machine = Machine({"one": 0.8, "hanging": 1.0}, duration_s=10.0)
    machine.failing["hanging",] = "it did not reach its last step within its time limit of 25 s"
    machine.failure_s = 15.0
    experiment, _ = run(machine, max_s=65)
    assert machine.limits_s == [65, 55, 45, 35, 25]
    assert verdicts(experiment) == {"one": "unsure", "hanging": "unsure"}
    assert experiment.notes == ["The time was over: pass a larger --max-minutes."]


@pytest.mark.parametrize("after", [0, 1, 5, 20, 24])
def test_after_an_interrupt_what_is_known_is_the_result(after, run):
    machine = Machine({"one": 0.8, "two": 0.8})
    experiment, _ = run(machine, is_interrupted=lambda: len(machine.starts) > after)
    assert experiment.notes == ["Interrupted."]
    assert not experiment.is_complete
    assert len(machine.starts) == after + 1


@pytest.mark.parametrize("limit", ["interrupt", "time"])
def test_a_round_counts_once_both_unmodified_starts_are_measured(limit, run):
    machine = Machine({"one": 0.8, "two": 0.8}, duration_s=10.0)  # 12 starts: all of three rounds but the last one
    experiment, _ = run(
        machine,
        is_interrupted=lambda: limit == "interrupt" and len(machine.starts) > 12,
        max_s=125 if limit == "time" else 600,
    )
    assert experiment.num_rounds == 3
    assert not experiment.is_complete
    assert verdicts(experiment) == {"one": "faster", "two": "faster"}


def test_a_full_disk_ends_the_run_with_what_is_known(run):
    machine = Machine({"one": 0.8})
    machine.num_starts_until_full = 9
    experiment, _ = run(machine)
    assert experiment.notes == ["A start failed: No space left on device."]
    assert verdicts(experiment) == {"one": "faster"}
    assert not experiment.is_complete
    machine.num_starts_until_full = 0
    with pytest.raises(OSError, match="No space left"):
        run(machine)


def test_unknown_peak_memory_is_not_counted_as_zero(run):
    machine = Machine({"fused": 0.8})
    result, _ = run(machine)
    assert (result.rows[0].peak_bytes, result.rows[0].peak_before_bytes) == (None, None)

    partly = Machine({"fused": 0.8})
    partly.peaks_bytes = dict.fromkeys(range(2, len(machine.starts), 2), 2**30)
    result, _ = run(partly)
    assert (result.rows[0].peak_bytes, result.rows[0].peak_before_bytes) == (2**30, 2**30)
