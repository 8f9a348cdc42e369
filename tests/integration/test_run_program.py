"""`kinetoscope run`: the program sees, prints and returns what it does without it."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest

import kinetoscope
from kinetoscope.autoinstrument.settings import ENVIRONMENT_VARIABLE
from kinetoscope.status.health import RunState, read_run_status
from support.autoinstrumented_runs import (
    BIN,
    KINETOSCOPE,
    UNINSTRUMENTED,
    lines_added,
    run,
    run_recorded,
    run_script,
)

pytest.importorskip("torch")


def test_signals_and_their_exit_codes_are_the_commands(tmp_path):
    script = "import os, sys; sys.stdout.write(str(os.getpid())); sys.stdout.flush(); import time; time.sleep(60)"
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL):
        command = [KINETOSCOPE, "run", "-o", f"run{number}", sys.executable, "-c", script]
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert int(process.stdout.read(len(str(process.pid)))) == process.pid, "no further process keeps running"
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
    (tmp_path / "torch.py").touch()  # only imports are tested here
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
exec(open({str(UNINSTRUMENTED)!r}).read())
"""
    )
    done = run_recorded("-o", "run", command=[script], folder=tmp_path)
    assert done.stderr.count("does not have threading._register_atexit") == 1
    assert "window recorded in 36 batches" in done.stderr


def test_one_line_in_the_script_does_the_same(tmp_path):
    script = f"import kinetoscope.auto, sys; sys.argv[1:] = ['no loader']; exec(open({str(UNINSTRUMENTED)!r}).read())"
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
