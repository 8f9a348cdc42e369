"""`kinetoscope run`: steps, phases and evaluations of uninstrumented training runs."""

import functools
import json
import os
import re
import sys
from statistics import median

import polars as pl
import pytest

import kinetoscope
from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.server.run_lists import RunLists
from support.autoinstrumented_runs import (
    BIN,
    KINETOSCOPE,
    UNINSTRUMENTED,
    frame_of,
    lines_added,
    lines_of_training,
    num_printed_steps,
    run,
    run_recorded,
    run_script,
)
from support.fork_server import TORCH_COMPILE_MODULES, run_command, run_forked

pytest.importorskip("torch")

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
    *("gan 5", "gan 15", "two optimizers", "optimizer in backward", "lbfgs", "autograd.grad", "iterable dataset"),
    *("validation with gradients", "validation first", "kept iterator"),
    *("no loader", "skipped by scaler", "compiled model", "spawn workers", "fsdp", "fetched between", "rollout"),
)
ALL = os.environ.get("KINETOSCOPE_LONG_TESTS") == "1"

WITH_ITS_OWN_PYTHON = ("plain", "kept iterator", "spawn workers", *RANKS)
"""Kinds recorded from a Python's first moment to its last; the others where torch is imported already."""


def command_of(kind):
    if kind not in RANKS:
        return [sys.executable, UNINSTRUMENTED, kind]
    return [BIN / "torchrun", "--standalone", "--nproc-per-node", "2", UNINSTRUMENTED, kind]


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
        return run_forked(
            (*TORCH_COMPILE_MODULES, "torch.distributed"), AS_TWO_RANKS, UNINSTRUMENTED, kind, folder=folder
        )
    if kind == "spawn workers":  # which import the script again
        return run(*command_of(kind), folder=folder)
    return run_script(UNINSTRUMENTED, kind, folder=folder)


@pytest.fixture(scope="module")
def training_runs(tmp_path_factory):
    """Run a program of a kind without and with `kinetoscope run`, once; return its folder and both results."""

    @functools.cache
    def train(kind):
        folder = tmp_path_factory.mktemp("training")
        plain = run_plain(kind, folder)
        # So an evaluation is in the window.
        options = ["--after", 8 if kind == "validation" else 3, "--num-steps", 4, "-o", "runs/x"]
        if kind in WITH_ITS_OWN_PYTHON:
            profiled = run(KINETOSCOPE, "run", *options, *command_of(kind), folder=folder)
        else:
            profiled = run_recorded(*options, command=[UNINSTRUMENTED, kind], folder=folder)
        return folder / "runs" / "x", plain, profiled

    return train


@pytest.mark.parametrize("kind", KINDS if ALL else QUICK)
def test_training_is_recorded_without_a_change(kind, training_runs):
    folder, plain, profiled = training_runs(kind)
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
    done = run_recorded("--after", 1000, "-o", "run", command=[UNINSTRUMENTED, "slow phases"], folder=tmp_path)
    (times,) = [json.loads(line[len("times") :]) for line in done.stdout.splitlines() if line.startswith("times")]
    steps = frame_of(tmp_path / "run").filter(pl.col("step") > 0)
    for name, own_ns in zip(("data_wait", "forward", "backward", "optimizer"), zip(*times, strict=True), strict=True):
        profiled_ns = steps[f"{name}_ns"].to_list()
        assert median(abs(profiled / own - 1) for profiled, own in zip(profiled_ns, own_ns, strict=True)) < 0.05, name


@pytest.mark.parametrize(
    ("kind", "longer", "shorter"), [("fetched between", "forward", "other"), ("rollout", "other", "forward")]
)
def test_forward_is_what_builds_the_graph_of_the_backward_pass(kind, longer, shorter, tmp_path):
    """A rollout without gradients is none, and a fetch between does not hide it."""
    run_recorded("--after", 1000, "-o", "run", command=[UNINSTRUMENTED, kind], folder=tmp_path)
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
def test_evaluations_are_a_phase_of_the_step_that_they_are_in(kind, training_runs):
    folder, _, _ = training_runs(kind)
    steps = frame_of(folder)
    assert steps.filter(pl.col("evaluation_ns") > 0)["step"].to_list() == EVALUATED[kind]
    trained = steps.filter(pl.col("step") > 0)  # of the first, only what follows its optimizer's step is timed
    assert trained.filter((pl.col("forward_ns") == 0) | (pl.col("optimizer_ns") == 0)).is_empty()


@pytest.mark.parametrize("option", ["--modules", "--diagnose"])
def test_modules_are_recorded_where_an_option_asks_for_them(option, tmp_path):
    plain = run_script(UNINSTRUMENTED, "plain", folder=tmp_path)
    options = (option, "--after", "3", "--num-steps", "4", "-o", "run")
    profiled = run_recorded(*options, command=[UNINSTRUMENTED, "plain"], folder=tmp_path)
    assert (profiled.returncode, lines_of_training(profiled)) == (plain.returncode, lines_of_training(plain))
    modules = kinetoscope.load(tmp_path / "run").modules
    outermost = modules.filter(pl.col("depth") == 0)
    assert outermost["num_calls"].to_list() == [4] * len(outermost)
    assert not outermost.is_empty()


def test_the_only_training_run_of_a_process_is_listed_without_a_note(training_runs):
    folder, _, _ = training_runs("validation")
    (run,) = RunLists(RunFolder(folder), "").all().runs
    assert run.notes == []


@pytest.mark.parametrize(
    ("kind", "message"), [("ends early", "ended with KeyError after 3 batches"), ("too short", "--after")]
)
def test_a_run_that_is_too_short_says_what_to_change_in_the_words_of_the_command(kind, message, tmp_path):
    done = run_recorded("-o", "run", command=[UNINSTRUMENTED, kind], folder=tmp_path)
    (line,) = [line for line in done.stderr.splitlines() if "Nothing was recorded" in line]
    assert message in line
    assert "skip_first" not in line
    assert line in run_command("summary", tmp_path / "run").stderr
