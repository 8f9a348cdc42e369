"""`kinetoscope run`: uninstrumented training runs are recorded, and behave as without it."""

import functools
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from statistics import median

import polars as pl
import pytest

import kinetoscope
from kinetoscope.autoinstrument.settings import ENVIRONMENT_VARIABLE
from kinetoscope.core.paths.later_run import find_latest_rerun
from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.server.run_lists import RunLists
from kinetoscope.status.health import RunState, read_run_status
from support.autoinstrumented_runs import (
    BIN,
    KINETOSCOPE,
    environment_of,
    frame_of,
    lines_added,
    lines_of_training,
    num_printed_steps,
    run,
    run_recorded,
    run_script,
    start_recorded,
)
from support.fork_server import TORCH_COMPILE_MODULES, run_command, run_forked

pytest.importorskip("torch")

TRAININGS = Path(__file__).parents[1] / "support" / "programs" / "uninstrumented.py"
RANKS = ("ddp", "fsdp")
QUICK = (
    "plain",
    "accumulation",
    "accumulation of 20",
    "validation",
    "fetched ahead",
    "compiled step",
    "ppo",
    "hooks of its own",
    "ddp",
)
KINDS = (
    *QUICK,
    "accumulation of 20",
    *("gan 5", "gan 15", "two optimizers", "optimizer in backward", "lbfgs", "autograd.grad", "iterable dataset"),
    *("validation with gradients", "validation first", "kept iterator"),
    *("no loader", "skipped by scaler", "compiled model", "spawn workers", "fsdp", "fetched between", "rollout"),
)
ALL = os.environ.get("KINETOSCOPE_ALL_TRAININGS") == "1"


WITH_ITS_OWN_PYTHON = ("plain", "kept iterator", "spawn workers", *RANKS)
"""Kinds recorded from a Python's first moment to its last; the others where torch is imported already."""


def command_of(kind):
    if kind not in RANKS:
        return [sys.executable, TRAININGS, kind]
    return [BIN / "torchrun", "--standalone", "--nproc-per-node", "2", TRAININGS, kind]


AS_TWO_RANKS = """
import os, runpy, sys, torch.distributed
pipes, children = [os.pipe() for _ in range(2)], []
for rank, (read_end, _) in enumerate(pipes):
    children.append(os.fork())
    if children[-1] == 0:
        where = {"MASTER_ADDR": "localhost", "MASTER_PORT": os.read(read_end, 10).decode()}
        os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "TORCHELASTIC_USE_AGENT_STORE": "True", **where}
        del sys.argv[0]
        runpy.run_path(sys.argv[0], run_name="__main__")
store = torch.distributed.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
for _, write_end in pipes:
    os.write(write_end, str(store.port).encode())
statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
sys.exit(int(statuses == [3, 3]))
"""


def run_plain(kind, folder):
    """Return the training without us. Ranks are started as torchrun starts them, which ends with 1 when they end with
    3."""
    if kind in RANKS:
        return run_forked((*TORCH_COMPILE_MODULES, "torch.distributed"), AS_TWO_RANKS, TRAININGS, kind, folder=folder)
    if kind == "spawn workers":  # which import the script again
        return run(*command_of(kind), folder=folder)
    return run_script(TRAININGS, kind, folder=folder)


@pytest.fixture(scope="module")
def trainings(tmp_path_factory):
    """Run a training of a kind without us and with us, once; its folder and both results."""

    @functools.cache
    def train(kind):
        folder = tmp_path_factory.mktemp("training")
        plain = run_plain(kind, folder)
        # So an evaluation is in the window.
        options = ["--after", 8 if kind == "validation" else 3, "--num-steps", 4, "-o", "runs/x"]
        if kind in WITH_ITS_OWN_PYTHON:
            profiled = run(KINETOSCOPE, "run", *options, *command_of(kind), folder=folder)
        else:
            profiled = run_recorded(*options, command=[TRAININGS, kind], folder=folder)
        return folder / "runs" / "x", plain, profiled

    return train


@pytest.mark.parametrize("kind", KINDS if ALL else QUICK)
def test_training_is_recorded_without_a_change(kind, trainings):
    folder, plain, profiled = trainings(kind)
    assert lines_of_training(plain), plain.stderr
    assert (profiled.returncode, lines_of_training(profiled)) == (plain.returncode, lines_of_training(plain)), (
        profiled.stderr
    )
    report = kinetoscope.analyze(folder)
    assert report.run["ranks"] == ([0, 1] if kind in RANKS else [0])
    assert (report.run["all_steps"]["num_steps"], report.run["num_steps"]) == (num_printed_steps(plain), 4)
    assert "window recorded in" in profiled.stderr
    assert not re.search("USDT|CPUAllocator", profiled.stderr)
    if kind not in RANKS:  # the lines of two ranks run into one another
        assert all(line.startswith(("Kinetoscope: ", "kinetoscope ")) for line in lines_added(profiled, plain)), (
            profiled.stderr
        )


def test_phases_are_those_that_the_script_times_itself(tmp_path):
    """In most steps: in some, the thread loses its processor between our look at the clock and the script's."""
    done = run_recorded("--after", 1000, "-o", "run", command=[TRAININGS, "slow phases"], folder=tmp_path)
    (times,) = [json.loads(line[len("times") :]) for line in done.stdout.splitlines() if line.startswith("times")]
    steps = frame_of(tmp_path / "run").filter(pl.col("step") > 0)
    for name, own_ns in zip(("data_wait", "forward", "backward", "optimizer"), zip(*times, strict=True), strict=True):
        profiled_ns = steps[f"{name}_ns"].to_list()
        apart = [
            abs(profiled - own) - max(0.05 * own, 300_000) for profiled, own in zip(profiled_ns, own_ns, strict=True)
        ]
        assert median(apart) <= 0, name


@pytest.mark.parametrize(
    ("kind", "longer", "shorter"), [("fetched between", "forward", "other"), ("rollout", "other", "forward")]
)
def test_forward_is_what_builds_the_graph_of_the_backward_pass(kind, longer, shorter, tmp_path):
    """A rollout without gradients is none, and a fetch between does not hide it."""
    run_recorded("--after", 1000, "-o", "run", command=[TRAININGS, kind], folder=tmp_path)
    steps = frame_of(tmp_path / "run").filter(pl.col("step") > 1)
    assert len(steps) > 30
    assert steps[f"{longer}_ns"].sum() > 2 * steps[f"{shorter}_ns"].sum() > 0


EVALUATED = {
    "validation": [10, 20, 30, 36, 40, 50, 60, 70],
    "validation with gradients": [12],
    "validation first": [5, 15, 25, 35],
    "fetched ahead": [36, 72, 108],
}


@pytest.mark.parametrize("kind", [kind for kind in EVALUATED if kind in QUICK or ALL])
def test_evaluations_are_a_phase_of_the_step_that_they_are_in(kind, trainings):
    folder, _, _ = trainings(kind)
    steps = frame_of(folder)
    assert steps.filter(pl.col("evaluation_ns") > 0)["step"].to_list() == EVALUATED[kind]
    trained = steps.filter(pl.col("step") > 0)  # of the first, only what follows its optimizer's step is timed
    assert trained.filter((pl.col("forward_ns") == 0) | (pl.col("optimizer_ns") == 0)).is_empty()


@pytest.mark.parametrize("option", ["--modules", "--diagnose"])
def test_modules_are_recorded_where_an_option_asks_for_them(option, tmp_path):
    plain = run_script(TRAININGS, "plain", folder=tmp_path)
    options = (option, "--after", "3", "--num-steps", "4", "-o", "run")
    profiled = run_recorded(*options, command=[TRAININGS, "plain"], folder=tmp_path)
    assert (profiled.returncode, lines_of_training(profiled)) == (plain.returncode, lines_of_training(plain))
    modules = kinetoscope.load(tmp_path / "run").modules
    outermost = modules.filter(pl.col("depth") == 0)
    assert outermost["num_calls"].to_list() == [4] * len(outermost)
    assert not outermost.is_empty()


@pytest.mark.parametrize(("kind", "num_steps"), [("sweep", [30] * 5), ("two stages", [40] * 2)])
def test_each_training_of_a_process_is_a_run_and_the_first_three_have_windows(kind, num_steps, tmp_path):
    plain = run_script(TRAININGS, kind, folder=tmp_path)
    options = ("--after", "3", "--num-steps", "4", "-o", "run")
    profiled = run_recorded(*options, command=[TRAININGS, kind], folder=tmp_path)
    assert (profiled.returncode, lines_of_training(profiled)) == (plain.returncode, lines_of_training(plain)), (
        profiled.stderr
    )
    folders = [tmp_path / "run", *(tmp_path / "run" / str(number) for number in range(2, len(num_steps) + 1))]
    assert [len(frame_of(folder)) for folder in folders] == num_steps
    assert not (tmp_path / "run" / str(len(num_steps) + 1)).exists()
    for folder in folders[:3]:
        assert kinetoscope.analyze(folder).run["num_steps"] == 4
    for folder in folders[3:]:
        assert "window of each of its first 3 training runs" in run_command("summary", folder).stderr
    (note,) = [note for note in kinetoscope.analyze(folders[0]).run["notes"] if "This process trained" in note]
    assert f"This process trained {len(num_steps)} times" in note
    of_all_runs = run_command("summary", tmp_path).stderr
    assert f"{tmp_path / 'run'}: {note} Runs are in it: name one of" in of_all_runs
    if kind == "sweep":
        assert "1: SGD with lr 0.1, 90 parameters, 30 steps" in note
        assert "5: SGD with lr 0.1, 1,410 parameters, 30 steps" in note
        listed = {run.title: run.notes[0] for run in RunLists(RunFolder(tmp_path), "").all().runs}
        assert listed["run"].startswith("Training run 1 of its process: SGD with lr 0.1, 90 parameters, 30 steps")
        assert listed["run/5"].startswith("Training run 5 of its process: SGD with lr 0.1, 1,410 parameters, 30 steps")
        later = frame_of(folders[1]).filter(pl.col("step") < 15)
        assert later["forward_ns"].null_count() == 15, "of steps before it was known, the phases are unknown"
        assert later["duration_ns"].min() >= 0 < later["duration_ns"].median()
    assert len(lines_added(profiled, plain)) == 2, "one window is announced, and how to look at it"


def test_the_only_training_run_of_a_process_is_listed_without_a_note(trainings):
    folder, _, _ = trainings("validation")
    (run,) = RunLists(RunFolder(folder), "").all().runs
    assert run.notes == []


MANY_TRAININGS = """
import torch
import kinetoscope.autoinstrument.instrumentation

kinetoscope.autoinstrument.instrumentation.MAX_RUNS = 4  # 200 of them take 20 s
for _ in range(7):
    weight = torch.ones(2, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(20):
        weight.sum().backward()
        optimizer.step()
"""


def test_training_runs_above_the_limit_get_no_folder_and_one_line(tmp_path):
    (tmp_path / "many.py").write_text(MANY_TRAININGS)
    done = run_recorded("-o", "run", command=["many.py"], folder=tmp_path)
    folders = [tmp_path / "run", *(tmp_path / "run" / str(number) for number in range(2, 5))]
    assert [len(frame_of(folder)) for folder in folders] == [20] * 4
    assert not (tmp_path / "run" / "5").exists()
    (line,) = [line for line in done.stderr.splitlines() if "trained 4 times" in line]
    assert line.startswith("kinetoscope run: nothing more is recorded: ")


@pytest.mark.parametrize(
    ("kind", "message"), [("ends early", "ended with KeyError after 3 batches"), ("too short", "--after")]
)
def test_a_run_that_is_too_short_says_what_to_change_in_the_words_of_the_command(kind, message, tmp_path):
    done = run_recorded("-o", "run", command=[TRAININGS, kind], folder=tmp_path)
    (line,) = [line for line in done.stderr.splitlines() if "Nothing was recorded" in line]
    assert message in line
    assert "skip_first" not in line
    assert line in run_command("summary", tmp_path / "run").stderr


def test_training_jobs_of_one_command_are_separate_runs_in_parallel_and_in_turn(tmp_path):
    environment = environment_of("-o", "sweep", folder=tmp_path)
    for num_at_once in (2, 1):
        started = [start_recorded(environment, [TRAININGS, "no loader"], tmp_path) for _ in range(num_at_once)]
        assert {training.wait().returncode for training in started} == {3}
    runs = [kinetoscope.analyze(tmp_path / folder).run for folder in ("sweep", "sweep-2", "sweep-3")]
    assert [run["all_steps"]["num_steps"] for run in runs] == [36, 36, 36]
    assert not list(tmp_path.glob("sweep*/**/attempt*"))
    assert find_latest_rerun(tmp_path / "sweep") == tmp_path / "sweep-3"
    message = "3 processes of this command trained, each in a folder of its own: sweep to sweep-3."
    for folder in ("sweep", "sweep-2", "sweep-3"):
        for command in ("summary", "status"):
            shown = run_command(command, tmp_path / folder)
            assert message in " ".join((shown.stdout + shown.stderr).split())
            assert "A later run" not in shown.stderr
    start_recorded(environment_of("-o", "sweep", folder=tmp_path), [TRAININGS, "no loader"], tmp_path).wait()
    assert "A later run of this name is in" in run_command("status", tmp_path / "sweep").stderr
    assert "processes" not in run_command("status", tmp_path / "sweep-4").stdout


def test_a_launch_with_the_name_of_one_that_is_over_is_another_run(tmp_path):
    """As torchrun's is, which has the same port each time."""
    launch = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
    environment = {**environment_of("-o", "run", folder=tmp_path), **launch}
    for folder in (tmp_path / "run", tmp_path / "run-2"):
        start_recorded(environment, [TRAININGS, "no loader"], tmp_path).wait()
        assert kinetoscope.analyze(folder).run["all_steps"]["num_steps"] == 36


THREAD = """
import runpy, sys, threading
sys.argv = [sys.argv[1], "no loader"]
def train():
    try:
        runpy.run_path(sys.argv[0], run_name="__main__")
    except SystemExit:
        pass
thread = threading.Thread(target=train)
thread.start()
thread.join()
"""


def test_training_on_another_thread_is_recorded_too(tmp_path):
    script = tmp_path / "threaded.py"
    script.write_text(THREAD)
    done = run_recorded("-o", "run", command=[script, TRAININGS], folder=tmp_path)
    assert "window recorded in 36 batches" in done.stderr
    assert done.stderr.count("registerClient") <= 1, "Kineto reports once that another thread has imported torch"


TWO_THREADS = """
import sys, threading, torch

at_once = sys.argv[1] == "at once"
both_step = threading.Barrier(2 if at_once else 1)

def train(is_first):
    if not is_first and not at_once:
        threads[0].join()
    weight = torch.ones(4, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for (batch,) in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(32, 4)), batch_size=2):
        (weight * batch).sum().backward()
        both_step.wait()
        optimizer.step()
        both_step.wait()
    both_step.wait()  # neither ends before the other's last step

threads = [threading.Thread(target=train, args=[is_first]) for is_first in (True, False)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


@pytest.mark.parametrize(("how", "folders"), [("at once", ["run"]), ("one after the other", ["run", "run/2"])])
def test_one_of_two_concurrent_training_threads_is_recorded_and_both_in_turn(tmp_path, how, folders):
    script = tmp_path / "threads.py"
    script.write_text(TWO_THREADS)
    options = ("-o", "run", "--after", "2", "--num-steps", "5")
    done = run_recorded(*options, command=[script, how], folder=tmp_path)
    assert "Watching the training failed" not in done.stderr
    assert "window recorded in 16 batches" in done.stderr
    assert (tmp_path / "run" / "2").exists() == ("run/2" in folders)
    assert [len(frame_of(tmp_path / folder)) for folder in folders] == [16] * len(folders)
    steps = frame_of(tmp_path / "run").filter(pl.col("step") >= 2)
    assert len(steps.filter(pl.col("backward_ns") > 0, pl.col("optimizer_ns") > 0)) == 14


def test_signals_and_their_exit_codes_are_the_commands(tmp_path):
    script = "import os, sys; sys.stdout.write(str(os.getpid())); sys.stdout.flush(); import time; time.sleep(60)"
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        command = [KINETOSCOPE, "run", "-o", f"run{number}", sys.executable, "-c", script]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert int(process.stdout.read(len(str(process.pid)))) == process.pid, "no process stays beside it"
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
        assert process.returncode == -number
        assert b"kinetoscope" not in errors


PRESSED_AT_EXIT = """
import signal, torch
from kinetoscope.handlers.json_trace_handler import JSONTraceHandler

def press(self, state, run):
    signal.raise_signal(signal.SIGINT)

JSONTraceHandler.close = press
weight = torch.ones(1, requires_grad=True)
optimizer = torch.optim.SGD([weight])
for _ in range(2):
    weight.sum().backward()
    optimizer.step()
"""


def test_ctrl_c_while_the_run_is_saved_after_the_program_prints_nothing_of_python(tmp_path):
    (tmp_path / "train.py").write_text(PRESSED_AT_EXIT)
    done = run_recorded("-o", "run", command=["train.py"], folder=tmp_path)
    assert done.returncode == 0
    assert "KeyboardInterrupt" not in done.stderr


SEES = """
import json, os, signal, sys
try:
    import sitecustomize
    own = getattr(sitecustomize, "mine", None)
except ImportError:
    own = None
print(json.dumps([sys.argv, sys.path, own, os.environ.get("PYTHONPATH"), str(signal.getsignal(signal.SIGPIPE)),
                  sys.flags.isolated, __name__]))
"""


@pytest.mark.parametrize("path", ["", "mine", f"mine{os.pathsep}"])
def test_a_program_sees_what_it_sees_without_it(path, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sitecustomize.py").write_text("mine = 'the user has it'\n")
    (tmp_path / "sees.py").write_text(SEES)
    command = [sys.executable, "sees.py", "a", "--b"]
    plain = run(*command, folder=tmp_path, environment={"PYTHONPATH": path})
    profiled = run(KINETOSCOPE, "run", "-o", "run", *command, folder=tmp_path, environment={"PYTHONPATH": path})
    before, after = json.loads(plain.stdout), json.loads(profiled.stdout)
    assert after[3].split(os.pathsep)[1:] == ([path] if path == "mine" else path.split(os.pathsep) if path else [])
    del before[3], after[3]
    assert after == before
    (line,) = lines_added(profiled, plain)
    assert line.startswith("kinetoscope run: nothing was recorded: this process did not import torch")


def test_failing_sitecustomize_is_reported_by_python_as_usual(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("raise ValueError('the user broke it')\n")
    command = [sys.executable, "-c", "print('continues')"]
    plain, profiled = (
        run(*before, *command, folder=tmp_path, environment={"PYTHONPATH": str(tmp_path)})
        for before in ((), (KINETOSCOPE, "run", "-o", "run"))
    )
    assert "the user broke it" in plain.stderr
    assert profiled.stdout == plain.stdout
    kept_lines = [line for line in profiled.stderr.splitlines(True) if "did not import torch" not in line]
    assert "".join(kept_lines) == 2 * plain.stderr, "kinetoscope is a Python program too"


WITHOUT_OPTIMIZER = """
import sys, torch
weight = torch.ones(1, requires_grad=True)
weight.sum().backward()
sys.exit(3 + int(weight.grad != 1))
"""


def test_a_python_without_kinetoscope_says_so_in_one_sentence_and_trains(tmp_path):
    (tmp_path / "kinetoscope").mkdir()
    (tmp_path / "kinetoscope" / "__init__.py").write_text("raise ImportError('not for this Python')\n")
    (tmp_path / "train.py").write_text(WITHOUT_OPTIMIZER)
    command = f'PYTHONPATH="$PYTHONPATH:{tmp_path}" exec {sys.executable} train.py'
    done = run(KINETOSCOPE, "run", "-o", "run", "sh", "-c", command, folder=tmp_path)
    assert (done.returncode, len(done.stderr.splitlines())) == (3, 1)
    assert "cannot import kinetoscope (not for this Python)" in done.stderr


def test_script_named_kinetoscope_trains_once_and_gets_the_reason_of_no_recording(tmp_path):
    script = tmp_path / "kinetoscope.py"
    script.write_text("import torch\nprint('trained')\n")
    (tmp_path / "torch.py").touch()  # what is asked for here is only who imports what
    done = run(KINETOSCOPE, "run", "-o", "run", sys.executable, script, folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, "trained\n")
    assert done.stderr == (
        f"kinetoscope run: nothing is recorded, because {script} is found in place of kinetoscope. "
        "Give that file another name.\n"
    )


def test_training_with_its_own_profiler_keeps_it(tmp_path):
    script = tmp_path / "profiled.py"
    script.write_text(
        """
import kinetoscope, torch
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with kinetoscope.profile("own", torch=False, system=False, quiet=True) as profiler:
    for _ in profiler.batches(range(20)):
        model(torch.ones(1, 2)).sum().backward()
        optimizer.step()
"""
    )
    done = run_recorded("-o", "run", command=[script], folder=tmp_path)
    assert done.returncode == 0
    assert "this process has a Profiler of its own" in done.stderr
    assert kinetoscope.analyze(tmp_path / "own").run["all_steps"]["num_steps"] == 20


def test_training_is_saved_without_the_private_name_for_its_end(tmp_path):
    script = tmp_path / "renamed.py"
    script.write_text(
        f"""
import sys, threading, torch
del threading._register_atexit
sys.argv[1:] = ["no loader"]
exec(open({str(TRAININGS)!r}).read())
"""
    )
    done = run_recorded("-o", "run", command=[script], folder=tmp_path)
    assert done.stderr.count("does not have threading._register_atexit") == 1
    assert "window recorded in 36 batches" in done.stderr


def test_one_line_in_the_script_does_the_same(tmp_path):
    script = f"import kinetoscope.auto, sys; sys.argv[1:] = ['no loader']; exec(open({str(TRAININGS)!r}).read())"
    settings = json.dumps({"out": str(tmp_path / "run"), "after": 2, "num_steps": 3})
    done = run(sys.executable, "-c", script, folder=tmp_path, environment={ENVIRONMENT_VARIABLE: settings})
    assert done.returncode == 3, done.stderr
    report = kinetoscope.analyze(tmp_path / "run")
    assert (report.run["all_steps"]["num_steps"], report.run["num_steps"]) == (36, 3)


@pytest.mark.parametrize(
    ("arguments", "status", "message"),
    [
        ([], 2, "Missing command"),
        (["-o", "run", "no-such-program"], 127, "Command not found: no-such-program"),
        (["-o", "run", "./data.txt"], 126, "Cannot execute ./data.txt"),
        (["-o", "run", "train.py"], 127, "Try: kinetoscope run python train.py"),
        (["--num-steps", "0", "true"], 2, "--num-steps: cannot read '0'. Write a whole number from 1"),
        (["-o", "data.txt/run", "true"], 2, "Pass another one with -o"),
        ([str(BIN / "torchrun"), "--nnodes", "2", "train.py"], 2, "Pass -o"),
    ],
)
def test_unrunnable_command_is_reported_and_nothing_starts(arguments, status, message, tmp_path):
    (tmp_path / "data.txt").write_text("")
    done = run(KINETOSCOPE, "run", *arguments, folder=tmp_path)
    assert (done.returncode, done.stdout) == (status, "")
    assert message in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("command", "environment", "folder"),
    [
        (["true"], {"SLURM_JOB_ID": "4711"}, "4711"),
        (["torchrun", "--nnodes=2", "--rdzv-id=my job/1", "train.py"], {}, "my-job-1"),
        (["torchrun", "--rdzv_id", "job7", "train.py"], {}, "job7"),
    ],
)
def test_the_folder_has_the_name_of_the_job(command, environment, folder):
    from kinetoscope.cli.run import choose_output

    assert choose_output(command, environment) == f"runs/{folder}"


@pytest.mark.parametrize("wait", [12, 8], ids=["begins within our window", "is running when it opens"])
def test_a_script_with_a_profiler_of_torchs_gets_its_results(wait, tmp_path):
    """Kineto records for one at a time. Then ours has the phases, without operators."""
    script = tmp_path / "profiled.py"
    script.write_text(
        f"""
import torch
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
schedule = torch.profiler.schedule(wait={wait}, warmup=1, active=8, repeat=1)
ready = lambda profiler: print("recorded", sum("addmm" in event.name for event in profiler.events()))
activities = [torch.profiler.ProfilerActivity.CPU]
with torch.profiler.profile(activities=activities, schedule=schedule, on_trace_ready=ready) as own:
    for _ in range(40):
        model(torch.randn(4, 8)).sum().backward()
        optimizer.step()
        own.step()
"""
    )
    plain = run_script(script, folder=tmp_path)
    profiled = run_recorded("-o", "run", command=[script], folder=tmp_path)
    assert (profiled.returncode, profiled.stdout) == (0, plain.stdout) == (0, "recorded 8\n")
    assert "Traceback" not in profiled.stderr
    assert re.search("[Aa]nother (torch )?profiler", profiled.stderr)
    report = kinetoscope.analyze(tmp_path / "run")
    assert report.run["all_steps"]["num_steps"] == 40
    assert report.run["parts"]["host"]["backward_ns"] > 0


def test_the_command_itself_is_there_at_once(tmp_path):
    """Slow imports happen in the training process, not in the launcher."""
    heavy = ("torch", "polars", "numpy", "psutil", "rich")
    loaded = f"[name for name in {heavy} if name in sys.modules]"
    program = f"import sys; from kinetoscope.cli import run; sys.exit(str({loaded}))"
    assert run(sys.executable, "-c", program, folder=tmp_path).stderr.strip() == "[]"


RAISES_IN_BACKWARD = """
import torch

class Raising(torch.autograd.Function):
    @staticmethod
    def forward(ctx, value):
        return value * 2

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("mine")

model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(5):
    value = model(torch.randn(2, 2))
    if step == 4:
        value = Raising.apply(value)
    value.sum().backward()
    optimizer.step()
"""


def test_the_traceback_of_a_backward_pass_is_that_of_the_command_alone(tmp_path):
    script = tmp_path / "raises.py"
    script.write_text(RAISES_IN_BACKWARD)
    plain = run_script(script, folder=tmp_path)
    profiled = run_recorded("-o", "run", command=[script], folder=tmp_path)
    assert profiled.returncode == plain.returncode == 1
    frames = [
        [line for line in done.stderr.splitlines() if line.startswith(("  File", "    ", "RuntimeError"))]
        for done in (plain, profiled)
    ]
    in_torch = [[line for line in lines if "/torch/" in line or "RuntimeError" in line] for lines in frames]
    assert len(in_torch[0]) > 2
    assert in_torch[0] == in_torch[1]
    assert read_run_status(tmp_path / "run").state is RunState.FAILED
