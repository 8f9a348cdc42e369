"""Steps that are slow in a way that is known are kept with their phase and line, however busy the machine is. What the
profiler says is compared with the training's own clock only."""

import json
import os
import random
import signal
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest

import kinetoscope
from kinetoscope.formats.slow_steps import read_slow_steps
from kinetoscope.pulse.layout import Phase
from support.autoinstrumented_runs import run_recorded
from support.fork_server import run_command, run_program, start_with_torch
from support.trace_processor.trace_processor import MISSING
from support.trace_processor.trace_processor import load as load_in_perfetto

PROGRAMS = Path(__file__).parents[1] / "support" / "programs"
PROGRAM, CROWDED = PROGRAMS / "slow_steps.py", PROGRAMS / "cpu_contention.py"
QUIET = {"OMP_NUM_THREADS": "1", "KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR"}
NUM_STEPS, EVERY = 800, 50
SLEEP_S = 0.3  # in the program
at_length = pytest.mark.skipif(
    "KINETOSCOPE_LONG_TESTS" not in os.environ,
    reason="in make test-long, since a busy machine is slow, too",
)
WAYS = ("data_wait", "forward", "backward", "optimizer")


def planted(seed):
    """Ten steps, far from one another, and in which way each is slow."""
    chance = random.Random(seed)
    return {100 + 66 * place + chance.randrange(20): chance.choice(WAYS) for place in range(10)}


def line_of(way):
    lines = PROGRAM.read_text().splitlines()
    return next(number for number, line in enumerate(lines, start=1) if line.endswith(f"# slow: {way}"))


def train(folder, num_steps, slow, ranks=1, **environment):
    """The report on the run, what was kept, and when the steps of each rank ended by its own clock."""
    program = folder / PROGRAM.name  # a file, so that lines have a name
    program.write_text(PROGRAM.read_text())
    arguments = [folder / "run", folder / "times", num_steps, json.dumps(slow)]
    arguments += [folder / "meeting_place"] if ranks > 1 else []
    places = [{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks)} for rank in range(ranks)]
    places = places if ranks > 1 else [{}]
    environment = os.environ | QUIET | environment
    for done in _run(program, arguments, [environment | place for place in places]):
        assert done.returncode == 0, done.stderr
        assert "Error" not in done.stderr
    times = [json.loads((folder / f"times{rank}").read_text()) for rank in range(ranks)]
    return kinetoscope.analyze(folder / "run", cache=False), read_slow_steps(folder / "run"), times


def _run(program, arguments, environments):
    run_it = f"import runpy, sys; sys.argv[0] = {str(program)!r}; runpy.run_path(sys.argv[0], run_name='__main__')"
    started = [start_with_torch(run_it, *arguments, environment=environment) for environment in environments]
    return [each.wait(300) for each in started]


def assert_slow_by_own_clock(slow, ended_ns):
    """A moment between the pulse's clock and the training's may belong to the step before or after."""
    took_ns = [end - begin for begin, end in pairwise(ended_ns)]  # of step 1 and later ones
    before = took_ns[max(0, slow.step - 257) : slow.step - 1]
    neighbors = took_ns[max(0, slow.step - 2) : slow.step + 1]
    assert max(neighbors) > 1.1 * median(before), slow


@at_length
def test_ten_of_ten_planted_slow_steps_are_kept_with_their_phase_and_line(tmp_path):
    pytest.importorskip("torch")
    slow = planted(seed=1)
    report, kept, (ended_ns,) = train(tmp_path, NUM_STEPS, slow)
    found = {each.step: each for each in kept}
    for step, way in slow.items():
        assert found[step].phase == Phase[way.upper()]
        assert found[step].excess_ns > 0.15e9
        assert found[step].line.endswith(f"{PROGRAM.name}:{line_of(way)}")
        trace = kinetoscope.load(tmp_path / "run/slow_steps" / found[step].path)
        assert f"event/{way}" in trace.spans.collect()["name"].to_list()
    for each in kept:
        assert_slow_by_own_clock(each, ended_ns)
    rows = {row["step"]: row for row in report.run["slow_steps"]}
    assert all(rows[step]["phase"] == way for step, way in slow.items())
    (finding,) = [finding for finding in report.findings if finding.kind == "slow_steps"]
    assert finding.saving_ns_per_step is None
    assert set(slow) <= set(finding.where.steps)


def test_nothing_else_rests_on_slow_steps(tmp_path):
    pytest.importorskip("torch")
    report, kept, _ = train(tmp_path, 300, {150: "forward", 250: "data_wait"})
    assert {150, 250} <= {each.step for each in kept}
    recorded = {row.step for row in report.steps}
    assert recorded == {2, 3, 4, 5, 6}
    for folder in (tmp_path / "run", tmp_path / "run/traces"):
        loaded = kinetoscope.load(folder).spans.collect()
        assert not {150, 250} & set(loaded.filter(loaded["name"] == "event/batch")["batch"])
    in_step = {each.step: tmp_path / "run/slow_steps" / each.path for each in kept}
    (look_up,) = kinetoscope.load(in_step[150]).spans.collect().filter(name="look up").to_dicts()
    assert (look_up["category"], look_up["batch"]) == ("input", 150)
    assert look_up["dur"] >= SLEEP_S * 1e9
    (step,) = [each for each in kept if each.step == 250]
    if not MISSING:
        with load_in_perfetto(tmp_path / "run/slow_steps" / step.path) as trace:
            assert trace.errors() == {}
            (wait,) = trace.query("select dur from slice where name = 'event/data_wait'")
            assert 0 < wait["dur"] <= step.duration_ns
    checked = run_command("check", tmp_path / "run/slow_steps" / step.path)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    summary = run_command("summary", "--no-cache", tmp_path / "run").stdout
    assert f"150: forward, {PROGRAM.name}:{line_of('forward')}" in summary
    alone = kinetoscope.analyze(tmp_path / "run/slow_steps" / step.path, cache=False)
    assert [row.step for row in alone.steps] == [250]


@at_length
def test_a_checkpoint_in_every_50th_step_is_named_with_its_period_and_is_one_row(tmp_path):
    pytest.importorskip("torch")
    slow = dict.fromkeys(range(99, NUM_STEPS, EVERY), "checkpoint")
    report, kept, (ended_ns,) = train(tmp_path, NUM_STEPS, slow)
    of_checkpoints = [each for each in kept if each.phase == Phase.CHECKPOINT]
    assert {each.step for each in of_checkpoints} <= set(slow)
    assert 4 <= len(of_checkpoints) <= 8  # on a busy machine one may be missed before the period is known
    assert of_checkpoints[-1].every == EVERY
    assert all(each.line.endswith(f"{PROGRAM.name}:{line_of('checkpoint')}") for each in of_checkpoints)
    (row,) = [row for row in report.run["slow_steps"] if row["phase"] == "checkpoint"]
    assert (row["every"], row["num_kept"]) == (EVERY, len(of_checkpoints))
    for each in kept:
        assert_slow_by_own_clock(each, ended_ns)


@at_length
def test_a_rank_that_is_late_is_named_and_not_the_one_that_waits_for_it(tmp_path):
    pytest.importorskip("torch")
    slow = dict.fromkeys((130, 210, 290), "late")
    report, kept, times = train(tmp_path, 350, slow, ranks=2)
    rows = {row["step"]: row for row in report.run["slow_steps"]}
    for step in slow:
        assert rows[step]["rank"] == 1
        assert rows[step]["ranks"] == [0, 1]
        assert rows[step]["phase"] == "forward"
        assert rows[step]["line"].endswith(f"{PROGRAM.name}:{line_of('forward')}")
    for each in kept:
        assert_slow_by_own_clock(each, times[each.rank])


@at_length
@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the system does not say who had no processor")
def test_neighbour_process_on_the_core_is_distinguished_from_a_slow_program(tmp_path):
    crowded = [130, 210, 290]
    done = run_program(
        CROWDED.read_text(), tmp_path / "run", tmp_path / "times", 350, json.dumps(crowded), timeout_s=300
    )
    assert done.returncode == 0, done.stderr
    rows = {row["step"]: row for row in kinetoscope.analyze(tmp_path / "run", cache=False).run["slow_steps"]}
    ended_ns = json.loads((tmp_path / "times").read_text())
    for step in crowded:
        assert rows[step]["is_machines"]
    for each in read_slow_steps(tmp_path / "run"):
        assert_slow_by_own_clock(each, ended_ns)


UNMODIFIED = """
import json, sys, time
import torch
from torch.utils.data import DataLoader

def work(step):
    if step == 250:
        time.sleep(0.3)  # slow

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
for step, batch in enumerate(DataLoader(torch.ones(400, 4))):
    work(step)
    model(batch).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def test_kinetoscope_run_keeps_slow_steps_of_an_uninstrumented_training(tmp_path):
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(UNMODIFIED)
    done = run_recorded("--slow-steps", "-o", "run", command=["train.py"], folder=tmp_path)
    assert done.returncode == 0, done.stderr
    (slow,) = [each for each in read_slow_steps(tmp_path / "run") if each.line == "train.py:8"]
    assert slow.step in (249, 250, 251)  # when the profiler begins, a step was taken
    assert slow.phase == Phase.FORWARD
    assert slow.excess_ns > 0.25e9


KILLED = """
import os, signal, sys, time
from pathlib import Path
import kinetoscope

with kinetoscope.profile(sys.argv[1], torch=False, system=False, slow_steps=True) as profiler:
    kept = Path(sys.argv[1], "slow_steps", "rank0.jsonl")
    for step in profiler.batches(range(10**6)):
        time.sleep(0.3 if step in (120, 140) else 0.001)
        lines = kept.read_text().splitlines() if step > 140 and kept.exists() else []
        if len(lines) > 1:
            for line in lines:
                print(line, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_after_a_kill_the_slow_steps_until_then_are_there(tmp_path):
    done = run_program(KILLED, tmp_path / "run")
    assert done.returncode == -signal.SIGKILL, done.stderr
    kept = read_slow_steps(tmp_path / "run")
    steps_until_then = {json.loads(line)["step"] for line in done.stdout.splitlines()}  # others on a busy machine
    assert len(steps_until_then) > 1
    assert steps_until_then <= {each.step for each in kept}
    for each in kept:
        spans = kinetoscope.load(tmp_path / "run/slow_steps" / each.path).spans.collect()
        assert spans.filter(spans["name"] == "event/batch")["dur"].to_list() == [each.duration_ns]
