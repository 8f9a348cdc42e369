"""`kinetoscope run` with the trainers of other libraries, which are not in every environment: `make test-trainers`."""

import importlib.util
import json
import os
import re
import sys
from pathlib import Path
from statistics import median

import polars as pl
import pytest

import kinetoscope
from support.autoinstrumented_runs import BIN, KINETOSCOPE, frame_of, lines_added, num_printed_steps, run

pytest.importorskip("torch")

PROGRAM = Path(__file__).parents[1] / "support" / "programs" / "trainers.py"
TRAINERS = ("transformers", "lightning", "pytorch_lightning", "accelerate")
HAS_ALL = os.environ.get("KINETOSCOPE_REQUIRE_TRAINERS") == "1"
EVALUATED = {  # the steps that an evaluation is before
    "transformers evaluation": [7, 14, 21, 28, 35, 42],
    "transformers epochs": [24],
    "lightning evaluation": [7, 14, 21, 31, 38, 45],
    "lightning epochs": [24],
    "lightning fit test fit": [24, 48, 72],
    "pytorch_lightning evaluation": [7, 14, 21, 31, 38, 45],
    "accelerate evaluation": [7, 14, 21, 31, 38, 45],
    "accelerate epochs": [24],
}
KINDS = (
    *("transformers", "transformers accumulation", "transformers twice"),
    *("lightning", "lightning accumulation", "lightning stream", "pytorch_lightning"),
    *("accelerate", "accelerate accumulation", *EVALUATED),
)
ON_TWO_RANKS = ("lightning ddp", "pytorch_lightning ddp", "accelerate ddp", "accelerate accumulation ddp")
PHASES = ("data_wait", "forward", "backward", "optimizer")


@pytest.fixture(autouse=True)
def its_trainer_is_here(kind):
    trainer = kind.split()[0]
    if importlib.util.find_spec(trainer) is None:
        assert not HAS_ALL, f"{trainer} is missing"
        pytest.skip(f"needs {trainer}")


def command_of(kind):
    """Lightning starts its other rank itself; accelerate has a launcher, which treats a CPU as any other device."""
    training = kind.removesuffix(" ddp") if kind.startswith("accelerate") else kind
    if training == kind:
        return [sys.executable, PROGRAM, training]
    ranks = ["--multi_gpu", "--num_processes", "2", "--main_process_port", "0"]
    return [*launcher(*ranks), PROGRAM, training]


def launcher(*options):
    usual = {"--num_machines": "1", "--mixed_precision": "no", "--dynamo_backend": "no"}
    return [BIN / "accelerate", "launch", *options, *[part for pair in usual.items() for part in pair]]


def printed_results(done):
    """Return stdout without the parts that differ from one run to the next."""
    return [line for line in done.stdout.splitlines() if not re.search("^times|_runtime", line)]


def check(command, folder, *options, ranks=(0,)):
    """Run a program with and without `kinetoscope run`: it is recorded, and its results are the same."""
    plain = run(*command, folder=folder)
    profiled = run(KINETOSCOPE, "run", "--after", 3, "--num-steps", 4, "-o", "run", *options, *command, folder=folder)
    assert plain.returncode in (0, 1, 3), plain.stderr
    assert (profiled.returncode, printed_results(profiled)) == (plain.returncode, printed_results(plain)), (
        profiled.stderr
    )
    report = kinetoscope.analyze(folder / "run")
    assert report.run["ranks"] == list(ranks)
    assert (report.run["all_steps"]["num_steps"], report.run["num_steps"]) == (num_printed_steps(plain), 4)
    assert "window recorded in" in profiled.stderr
    if len(ranks) == 1:  # the lines of two ranks run into one another
        tips = ("💡", "Kinetoscope: ", "kinetoscope ")  # Lightning draws its own by chance
        assert all(line.startswith(tips) for line in lines_added(profiled, plain)), profiled.stderr
    return profiled


def check_phases(kind, done, steps):
    """In most steps. Accumulated batches are as many occasions to be apart from what the script times."""
    (times,) = [json.loads(line[len("times") :]) for line in done.stdout.splitlines() if line.startswith("times")]
    allowed_ns = 300_000 * (4 if "accumulation" in kind else 1)
    for name, own_ns in zip(PHASES, zip(*times, strict=True), strict=False):
        profiled_ns = steps[f"{name}_ns"].to_list()
        apart = [
            abs(profiled - own) - max(0.05 * own, allowed_ns) for profiled, own in zip(profiled_ns, own_ns, strict=True)
        ]
        assert median(apart) <= 0, name


@pytest.mark.parametrize("kind", KINDS)
def test_training_in_a_trainer_is_recorded_without_a_change(kind, tmp_path):
    done = check(command_of(kind), tmp_path)
    steps = frame_of(tmp_path / "run").filter(pl.col("step") > 0)
    assert steps.filter(pl.col("evaluation_ns") > 0)["step"].to_list() == EVALUATED.get(kind, [])
    check_phases(kind, done, steps)


@pytest.mark.parametrize("kind", ON_TWO_RANKS)
def test_ranks_that_a_trainer_starts_are_of_one_run(kind, tmp_path):
    check(command_of(kind), tmp_path, ranks=(0, 1))


@pytest.mark.parametrize("kind", ["accelerate accumulation"])
def test_one_process_that_accelerate_launches_is_recorded(kind, tmp_path):
    check([*launcher("--cpu", "--num_processes", "1"), PROGRAM, kind], tmp_path)


@pytest.mark.parametrize("kind", ["transformers evaluation", "lightning fit test fit", "accelerate evaluation"])
def test_steps_counted_by_the_optimizer_are_the_same(kind, tmp_path):
    check(command_of(kind), tmp_path, "--count-by", "optimizer")
