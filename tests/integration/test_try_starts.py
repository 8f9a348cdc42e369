"""One start of a command by `kinetoscope try`: it ends after its last measured step, and nothing is left running."""

import os
import random
import sys
import tempfile
import time
from pathlib import Path

import pytest

import kinetoscope
from kinetoscope.autoinstrument.trial_files import TrialSettings
from kinetoscope.experiments.results import compare_results
from kinetoscope.experiments.start import Command, InterruptedTrialError, run_start
from kinetoscope.formats.experiments import AppliedVariant
from support.try_programs import find_left_running, write_programs

pytest.importorskip("torch")

BIN = Path(sys.executable).parent
TIMEOUT_S = 240


@pytest.fixture
def folder(tmp_path):
    return make_work_folder(tmp_path)


def make_work_folder(folder):
    work = folder / "work"
    work.mkdir()
    write_programs(work)
    return work


@pytest.fixture(scope="module")
def unmodified_starts(tmp_path_factory):
    """Two starts of the same script, and the folder that they ran in. Each imports torch."""
    work = make_work_folder(tmp_path_factory.mktemp("unmodified"))
    return work, [start(work, "python", "train.py", observes=True, compares_results=True).ranks for _ in range(2)]


def start(folder, *words, is_interrupted=lambda: False, timeout_s=TIMEOUT_S, copies=False, **settings):
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "OMP_NUM_THREADS": "1"}
    command = Command(words, folder, copies=copies, environment=environment)
    asked = TrialSettings(folder=tempfile.mkdtemp(dir=folder.parent), num_steps=20, **settings)
    try:
        return run_start(command, asked, timeout_s=timeout_s, is_interrupted=is_interrupted)
    finally:
        assert not find_left_running(folder.parent)


def test_a_script_ends_at_its_last_measured_step(unmodified_starts):
    folder, ((rank,), _) = unmodified_starts
    assert len(rank.step_times_ns) == 20
    assert min(rank.step_times_ns) > 0
    assert rank.peak_bytes > 100 << 20
    assert [one.name for one in rank.facts.optimizers] == ["SGD"]
    assert rank.parameters.first != rank.parameters.last
    assert not (folder / "finally").exists()


def test_two_starts_have_the_same_random_numbers(unmodified_starts):
    _, starts = unmodified_starts
    assert len({rank.parameters.digest for (rank,) in starts}) == 1


SEEDS = """
import random, sys
import numpy
drawn = random.random(), float(numpy.random.rand())
import torch
print(*drawn, random.random(), torch.rand(1).item())
sys.exit(1)
"""


def test_seeds_are_set_before_the_first_line_of_the_script(folder):
    (folder / "seeds.py").write_text(SEEDS)
    printed = {start(folder, "python", "seeds.py").log_tail for _ in range(2)}
    assert len(printed) == 1
    assert len({*printed.pop().split()}) == 4


def test_a_script_may_set_its_own_seeds(folder):
    (folder / "seeds.py").write_text("import random\nrandom.seed(5)\n" + SEEDS)
    expected = random.Random(5).random()
    assert start(folder, "python", "seeds.py").log_tail.startswith(f"{expected} ")


UNSEEDED = """
import os, random
random.seed(os.urandom(8))
exec(open("train.py").read().replace("1e-3", "1e-3 * random.random()"))
"""


def test_parameters_of_a_variant_are_compared_with_those_of_the_unmodified_program(unmodified_starts, folder):
    def parameters(*names, program="train.py"):
        variants = [AppliedVariant(name, True) for name in names]
        files = [str(folder / "mine.py")] if names else []
        return start(folder, "python", program, variants=variants, files=files, compares_results=True).ranks

    _, (first, second) = unmodified_starts
    found = {name: compare_results(first, second, parameters(name))[0] for name in ("relaxed_gc", "half_rate")}
    assert found == {"relaxed_gc": "equal", "half_rate": "different"}
    (folder / "unseeded.py").write_text(UNSEEDED)
    first, second = (parameters(program="unseeded.py") for _ in range(2))
    assert compare_results(first, second, first) == ("not_reproducible", "two unmodified starts differ")


ONE_RANK_DIFFERS = """
import os, torch
rank = int(os.environ["RANK"])
torch.distributed.init_process_group("gloo")
model = torch.nn.Linear(16, 16)
rate = 1e-3 * (2 if rank and "DIFFERS" in os.environ else 1)
optimizer = torch.optim.SGD(model.parameters(), rate)
while True:
    optimizer.zero_grad()
    model(torch.randn(4, 16)).square().mean().backward()
    optimizer.step()
"""


def test_each_shard_of_the_parameters_is_compared(folder):
    (folder / "ranks.py").write_text(ONE_RANK_DIFFERS)
    words = ["torchrun", "--standalone", "--nproc-per-node", "2", "ranks.py"]
    same = start(folder, *words, compares_results=True).ranks
    other = start(folder, "env", "DIFFERS=1", *words, compares_results=True).ranks
    assert same[0].parameters.digest == other[0].parameters.digest
    assert compare_results(same, same, other)[0] == "different"


@pytest.mark.parametrize("script", ["train.sh", "stubborn.sh"])
def test_the_next_line_of_a_shell_script_does_not_run(script, folder):
    assert start(folder, "bash", script).ranks
    assert (folder / "precious").exists()


def test_each_rank_has_a_result(folder):
    result = start(folder, "torchrun", "--standalone", "--nproc-per-node", "2", "train.py", observes=True)
    assert [(rank.rank, len(rank.step_times_ns)) for rank in result.ranks] == [(0, 20), (1, 20)]
    assert result.ranks[0].facts.ddp


def test_a_recorded_start_leaves_traces_for_findings(folder):
    result = start(folder, "python", "train.py", records=True, observes=True)
    assert list((result.recording / "traces").glob("*-rank0.json.gz"))
    assert kinetoscope.analyze(result.recording).run["num_steps"] == 10


def test_a_variant_is_applied_and_counted(folder):
    result = start(folder, "python", "train.py", variants=[AppliedVariant("fused", True)])
    assert result.ranks[0].num_applied == {"fused": 1}


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["python", "train.py", "12"], "the command ended before 30 training steps"),
        (["python", "-c", "print('no training')"], "the command ended before 30 training steps"),
        (["python", "-c", "import sys; sys.exit(3)"], "the command ended with exit code 3 before 30 steps"),
    ],
)
def test_a_command_without_enough_steps_is_reported_in_a_sentence(words, reason, folder):
    result = start(folder, *words)
    assert (result.ranks, result.reason) == ([], reason)


def test_a_script_that_ends_after_its_least_steps_is_measured(folder):
    assert len(start(folder, "python", "train.py", "35").ranks[0].step_times_ns) == 20


def test_a_variant_that_cannot_be_applied_is_reported_with_its_error(folder):
    files = [str(folder / "mine.py")]
    result = start(folder, "python", "train.py", variants=[AppliedVariant("crash", True)], files=files)
    assert result.reason == "ValueError: this variant crashes"


def test_a_crash_is_reported_with_the_last_lines_of_the_log(folder):
    files = [str(folder / "mine.py")]
    result = start(folder, "python", "train.py", variants=[AppliedVariant("out_of_memory", True)], files=files)
    assert result.reason == "the command ended with exit code 1 before 30 steps"
    assert result.log_tail.splitlines()[-1] == "MemoryError: no memory is left"
    assert len(result.log_tail.splitlines()) <= 20


def test_a_start_has_a_time_limit(folder):
    sleeping = ["python", "-c", "import subprocess, time; subprocess.Popen(['sleep', '600']); time.sleep(600)"]
    result = start(folder, *sleeping, timeout_s=1)
    assert result.reason == "it did not reach its last step within the time limit"


@pytest.mark.parametrize("after_s", [0.0, 1.0, 4.0])
def test_an_interrupt_ends_all_processes(after_s, folder):
    end = time.monotonic() + after_s
    line = "python -c 'import torch, time; time.sleep(600)'; rm precious"  # it never ends by itself, on no machine
    with pytest.raises(InterruptedTrialError):
        start(folder, "bash", "-c", line, is_interrupted=lambda: time.monotonic() > end)
    assert (folder / "precious").exists()


def test_a_copy_of_the_working_folder_takes_what_a_start_writes(folder):
    program = "import os; os.remove('precious'); exec(open('train.py').read())"
    assert start(folder, "python", "-c", program, copies=True).ranks
    assert (folder / "precious").exists()


def test_standard_input_is_empty_and_trackers_are_disabled(folder):
    program = "import os, sys; print(repr(sys.stdin.read()), os.environ['WANDB_MODE']); sys.exit(1)"
    assert start(folder, "python", "-c", program).log_tail == "'' disabled"
