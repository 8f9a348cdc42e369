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
        (["python", "train.py", "12"], "it ended before the 30 training steps that a measurement needs"),
        (["python", "-c", "print('no training')"], "it ended before the first step of a torch optimizer"),
    ],
)
def test_a_script_without_enough_steps_is_reported_in_a_sentence(words, reason, folder):
    result = start(folder, *words)
    assert (result.ranks, result.reason) == ([], reason)


def test_a_script_that_ends_after_its_least_steps_is_measured(folder):
    assert len(start(folder, "python", "train.py", "35").ranks[0].step_times_ns) == 20


def test_a_variant_that_cannot_be_applied_is_reported_with_its_error(folder):
    files = [str(folder / "mine.py")]
    result = start(folder, "python", "train.py", variants=[AppliedVariant("crash", True)], files=files)
    assert result.reason == result.error == "ValueError: this variant crashes"


def test_an_exception_with_a_variant_is_reported_before_a_script_runs_its_next_line(folder):
    files = [str(folder / "mine.py")]
    result = start(folder, "bash", "train.sh", variants=[AppliedVariant("out_of_memory", True)], files=files)
    assert result.reason == "MemoryError: no memory is left"
    assert result.log_tail.splitlines()[-1] == result.error == result.reason
    assert len(result.log_tail.splitlines()) <= 20
    assert (folder / "precious").exists()


CATCHES = """
import runpy, sys
try:
    runpy.run_path("train.py")
except MemoryError as error:
    sys.exit(f"caught: {error}")
"""


@pytest.mark.parametrize("is_caught", [False, True])
def test_an_exit_with_a_variant_is_reported_before_a_script_runs_its_next_line(is_caught, folder):
    (folder / "exits.py").write_text(CATCHES)
    (folder / "train.sh").write_text("python exits.py\nrm precious\n")
    name = "out_of_memory" if is_caught else "exit"
    result = start(folder, "bash", "train.sh", variants=[AppliedVariant(name, True)], files=[str(folder / "mine.py")])
    assert (result.ranks, result.reason) == ([], "it exited before its last measured step")
    assert (folder / "precious").exists()


CHECKED = """
python -c 'import torch; assert torch.cuda.device_count() > 1000' || echo using the CPU
python train.py
"""


def test_the_exit_of_another_process_is_no_failure_of_a_variant(folder):
    (folder / "train.sh").write_text(CHECKED)
    first = start(folder, "bash", "train.sh", observes=True)
    assert first.has_helpers
    variants, files = [AppliedVariant("half_rate", True)], [str(folder / "mine.py")]
    result = start(folder, "bash", "train.sh", variants=variants, files=files, has_helpers=first.has_helpers)
    assert result.ranks[0].num_applied["half_rate"] > 0


FORKS = """
import os, runpy, sys, torch

def exit_in_child(*_):
    handle.remove()
    if os.fork() == 0:
        sys.exit()
    os.wait()

handle = sys.modules["torch.optim.optimizer"].register_optimizer_step_post_hook(exit_in_child)
runpy.run_path("train.py")
"""


def test_the_exit_of_a_forked_child_is_no_failure_of_a_variant(folder):
    (folder / "forks.py").write_text(FORKS)
    variants, files = [AppliedVariant("half_rate", True)], [str(folder / "mine.py")]
    result = start(folder, "python", "forks.py", variants=variants, files=files)
    assert result.reason == ""
    assert len(result.ranks) == 1


def test_a_program_without_other_processes_has_no_helpers(folder):
    assert not start(folder, "torchrun", "--standalone", "--nproc-per-node", "2", "train.py", observes=True).has_helpers


def test_a_script_with_a_profiler_of_its_own_is_reported_at_once(folder):
    program = "import kinetoscope, runpy, torch\nwith kinetoscope.profile('own'):\n    runpy.run_path('train.py')\n"
    (folder / "own.py").write_text(program)
    result = start(folder, "python", "own.py")
    assert result.reason == "no step can be measured: this process has a Profiler of its own"


LAUNCHER = """#!{python}
import signal, subprocess
signal.signal(signal.SIGTERM, lambda *_: print("waiting for ranks", flush=True))
subprocess.run(["python", "train.py"])
"""


@pytest.mark.parametrize("launcher", ["make", "./launch"])
def test_launchers_that_wait_for_rank_0_do_not_delay_the_end(launcher, folder, monkeypatch):
    monkeypatch.setattr("kinetoscope.autoinstrument.process_group.TERM_TIMEOUT_S", 10_000)  # pytest's limit is shorter
    (folder / "Makefile").write_text("train:\n\tpython train.py\n\trm precious\n")
    (folder / "launch").write_text(LAUNCHER.format(python=sys.executable))
    (folder / "launch").chmod(0o755)
    assert len(start(folder, launcher).ranks) == 1
    assert (folder / "precious").exists()


def test_the_error_of_a_rank_is_found_above_that_of_its_launcher(folder):
    lines = ["import torch", "torch.distributed.init_process_group('gloo')", "torch.distributed.barrier()"]
    (folder / "broken.py").write_text("\n".join([*lines, "if torch.distributed.get_rank(): 1 / 0", lines[-1]]))
    result = start(folder, "torchrun", "--standalone", "--nproc-per-node", "2", "broken.py")
    assert result.error == "[rank1]: ZeroDivisionError: division by zero"
    assert "ZeroDivisionError" not in result.log_tail


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
