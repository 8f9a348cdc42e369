"""Our integrations in the real trainers, which are not in every environment: `make test-trainers`."""

import importlib.util
import logging
import os
import subprocess
import sys
import warnings
from pathlib import Path

import polars as pl
import pytest

import kinetoscope
from kinetoscope.hooks.private_names import loader_iterator
from support.autoinstrumented_runs import BIN, frame_of
from support.trace_processor.trace_processor import load

pytest.importorskip("torch")

from support.notebook_kernel import run_cells
from support.programs.integrations import (
    BATCH_SIZE,
    EVERY,
    HAS_EVALUATION,
    LIBRARIES,
    NUM_BATCHES,
    Network,
    Samples,
    integrate,
    train,
)

SCRIPT = Path(__file__).parents[1] / "support" / "programs" / "integrations.py"
HAS_ALL = os.environ.get("KINETOSCOPE_REQUIRE_TRAINERS") == "1"
NUM_STEPS = 2 * NUM_BATCHES
RECORDED = list(range(2, 12))
PHASES = ("data_wait", "forward", "backward", "optimizer")


@pytest.fixture(autouse=True)
def quiet_libraries():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture(params=LIBRARIES)
def trainer(request):
    return here(request.param)


def here(trainer):
    """Return the trainer, if its library is installed."""
    library = LIBRARIES[trainer]
    if importlib.util.find_spec(library) is None:
        assert not HAS_ALL, f"{library} is missing"
        pytest.skip(f"needs {library}")
    return trainer


def span_names(run):
    return kinetoscope.load(run).spans.collect()["name"].to_list()


def is_unwatched():
    """Return whether none of our hooks is left on torch's DataLoaders."""
    return not hasattr(vars(loader_iterator.find())["__next__"], "replacement")


def test_losses_are_the_same_and_each_step_has_its_phases(trainer, tmp_path):
    plain, _ = train(trainer, tmp_path / "plain")
    losses, _ = train(trainer, tmp_path / "ours", integrate(trainer, tmp_path / "run", quiet=True))
    assert losses == plain
    assert kinetoscope.active_profiler() is None
    assert is_unwatched()
    steps = frame_of(tmp_path / "run")
    assert steps["step"].to_list() == list(range(NUM_STEPS))
    assert steps["epoch"].to_list() == [0] * NUM_BATCHES + [1] * NUM_BATCHES
    for phase in PHASES:
        assert steps[f"{phase}_ns"].min() > 0, phase
    report = kinetoscope.analyze(tmp_path / "run")
    assert report.run["num_steps"] == len(RECORDED)
    with load(tmp_path / "run" / "traces" / "merged_trace.json.gz") as trace:
        assert trace.errors() == {}


def test_accumulated_batches_are_one_step(trainer, tmp_path):
    plain, _ = train(trainer, tmp_path / "plain", accumulates=4)
    losses, _ = train(trainer, tmp_path / "ours", integrate(trainer, tmp_path / "run", quiet=True), accumulates=4)
    assert losses == plain
    in_batches = trainer == "accelerate"  # there the user's own loop over batches says what a step is
    assert len(frame_of(tmp_path / "run")) == (NUM_STEPS if in_batches else NUM_STEPS // 4)


@pytest.mark.parametrize("trainer", HAS_EVALUATION)
def test_evaluation_on_the_training_data_is_distinguished(trainer, tmp_path):
    trainer = here(trainer)
    plain, _ = train(trainer, tmp_path / "plain", evaluates=True)
    losses, _ = train(trainer, tmp_path / "ours", integrate(trainer, tmp_path / "run", quiet=True), evaluates=True)
    assert losses == plain
    steps = frame_of(tmp_path / "run")
    assert len(steps) == NUM_STEPS
    in_epochs = "lightning" in trainer  # it counts the batches of each epoch anew
    places = [6, 12, 22, 28] if in_epochs else [6, 12, 18, 24, 30]
    assert steps.filter(pl.col("evaluation_ns") > 0)["step"].to_list() == places
    assert span_names(tmp_path / "run").count("event/eval") == 1  # that before step 6, between two recorded steps


def test_a_slow_dataset_is_the_first_finding_and_named_by_its_line(trainer, tmp_path):
    train(trainer, tmp_path / "c", integrate(trainer, tmp_path / "run", quiet=True, diagnose=True), wait_s=0.01)
    findings = kinetoscope.analyze(tmp_path / "run").findings
    first = next(one for one in findings if one.kind != "processor_contention")  # of other processes
    lines = SCRIPT.read_text().splitlines()
    planted = next(number for number, line in enumerate(lines, 1) if "# PLANTED" in line)
    assert (first.kind, first.where.lines) == ("input_bound", (f"{SCRIPT.name}:{planted}",))


def test_a_second_training_is_a_run_of_its_own(trainer, tmp_path):
    integration = integrate(trainer, tmp_path / "run", quiet=True)
    first, _ = train(trainer, tmp_path / "a", integration)
    second, _ = train(trainer, tmp_path / "b", integration)
    assert first == second
    for run in (tmp_path / "run", tmp_path / "run" / "2"):
        assert len(frame_of(run)) == NUM_STEPS
        assert kinetoscope.analyze(run).run["num_steps"] == len(RECORDED)


def test_resumed_training_run_continues_at_its_position(trainer, tmp_path):
    _, checkpoint = train(trainer, tmp_path / "first")
    plain, _ = train(trainer, tmp_path / "plain", resumes_from=checkpoint)
    losses, _ = train(
        trainer, tmp_path / "ours", integrate(trainer, tmp_path / "run", quiet=True), resumes_from=checkpoint
    )
    assert losses == plain
    steps = frame_of(tmp_path / "run")
    first = 0 if trainer == "accelerate" else EVERY  # accelerate's loop is the user's own
    assert steps["step"].to_list() == list(range(first, first + len(losses)))
    assert kinetoscope.analyze(tmp_path / "run").run["num_steps"] == len(RECORDED)


@pytest.mark.parametrize("error", [ValueError("planted"), KeyboardInterrupt])
def test_training_ended_by_an_exception_is_saved(trainer, error, tmp_path):
    integration = integrate(trainer, tmp_path / "run", quiet=True)
    with pytest.raises((ValueError, KeyboardInterrupt, SystemExit)):
        train(trainer, tmp_path / "a", integration, network=Network(fails_at=9, error=error))
    if trainer == "transformers":  # which calls no hook: the next training run ends it
        assert kinetoscope.active_profiler() is not None
        assert not is_unwatched()
    else:
        assert kinetoscope.active_profiler() is None
        assert is_unwatched()
    losses, _ = train(trainer, tmp_path / "b", integration)
    assert len(losses) == NUM_STEPS
    assert kinetoscope.analyze(tmp_path / "run").run["num_steps"] in (7, 8)  # steps 2 to 8, and the one that failed
    assert kinetoscope.analyze(tmp_path / "run" / "2").run["num_steps"] == len(RECORDED)
    assert is_unwatched()


@pytest.mark.parametrize("way", ["", "by_ctrl_c=true"])
def test_a_script_that_an_exception_ends_is_saved_when_it_exits(trainer, way, tmp_path):
    done = run_script(trainer, tmp_path, "fails_at=9", *filter(None, [way]))
    assert done.returncode != 0
    assert "window recorded in" in done.stderr
    assert kinetoscope.analyze(tmp_path / "run").run["num_steps"] in (7, 8)


def test_an_error_of_a_source_does_not_end_training(trainer, tmp_path, caplog):
    class Breaks(kinetoscope.Callback):
        def batch_end(self, state, logger):
            raise RuntimeError("planted")

    losses, _ = train(trainer, tmp_path / "a", integrate(trainer, tmp_path / "run", quiet=True, sources=[Breaks()]))
    assert len(losses) == NUM_STEPS
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 1


def test_it_says_at_once_that_an_argument_is_unknown(trainer):
    with pytest.raises(TypeError, match="shedule"):
        integrate(trainer, "run", shedule=None)


ON_TWO_RANKS = ("lightning", "pytorch_lightning", "transformers", "accelerate")


@pytest.mark.parametrize("trainer", ON_TWO_RANKS)
def test_two_ranks_are_of_one_run(trainer, tmp_path):
    trainer = here(trainer)
    if "lightning" in trainer:
        done = run_script(trainer, tmp_path, "devices=2")
    else:
        done = run_script(trainer, tmp_path, launcher=[BIN / "torchrun", "--standalone", "--nproc-per-node", "2"])
    assert done.returncode == 0, done.stderr
    report = kinetoscope.analyze(tmp_path / "run")
    assert report.run["ranks"] == [0, 1]
    assert report.run["all_steps"]["num_steps"] == NUM_STEPS // 2
    with load(tmp_path / "run" / "traces" / "merged_trace.json.gz") as trace:
        assert trace.errors() == {}


def run_script(trainer, folder, *settings, launcher=(sys.executable,)):
    command = [*launcher, SCRIPT, trainer, folder, *settings]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=170, env=environment)


def test_lightnings_actions_are_spans_under_its_names(tmp_path):
    trainer = here("lightning")
    integration = integrate(trainer, tmp_path / "run", quiet=True)
    train(trainer, tmp_path / "a", integration)
    names = set(span_names(tmp_path / "run"))
    assert {"run_training_batch", "[Strategy]SingleDeviceStrategy.training_step"} <= names
    assert not [name for name in names if "KinetoscopeCallback" in name]
    assert integration.summary().startswith("<kinetoscope.RunReport of run: 1 of 1 ranks, 10 steps")


def test_callback_keeps_lightnings_own_profiler(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch")
    integration, simple = (
        integrate("lightning callback", tmp_path / "run", quiet=True),
        lightning.profilers.SimpleProfiler(),
    )

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network = Network()

        def configure_optimizers(self):
            import torch

            return torch.optim.SGD(self.parameters(), 0.1)

        def training_step(self, batch, number):
            return self.network(**batch)["loss"]

    from torch.utils.data import DataLoader

    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing"), False)
    trainer = lightning.Trainer(accelerator="cpu", max_steps=14, callbacks=[integration], profiler=simple, **quiet)
    trainer.fit(Module(), DataLoader(Samples(), batch_size=BATCH_SIZE))
    assert trainer.profiler is simple
    assert len(simple.recorded_durations["run_training_batch"]) == 14
    assert frame_of(tmp_path / "run")["step"].to_list() == list(range(14))


CELL = """
import signal, sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, {tests!r})
from pathlib import Path
from support.programs.integrations import Network, integrate, train
network = Network(fails_at=9, error=KeyboardInterrupt)
train({trainer!r}, Path({trainer!r}), integrate({trainer!r}, {trainer!r} + "/run", quiet=True), network=network)
"""
LOOKING = """
import kinetoscope
print("active:", kinetoscope.active_profiler())
"""
MAGIC = """
%%kinetoscope {trainer!r} + "/magic"
losses, _ = train({trainer!r}, Path({trainer!r}) / "again")
"""


def test_ctrl_c_in_a_notebook_ends_the_run_and_the_magic_needs_no_callback(trainer, tmp_path):
    names = {"trainer": trainer, "tests": str(SCRIPT.parents[2])}
    texts = [CELL.format(**names), LOOKING, "%load_ext kinetoscope", MAGIC.format(**names).strip(), LOOKING]
    interrupted, looking, _, _, looking_again = run_cells(tmp_path, texts, allow_errors=True)
    error = next(output.ename for output in interrupted if output.output_type == "error")
    assert error in ("KeyboardInterrupt", "SystemExit")  # which Lightning makes of it
    assert [output.text for output in (*looking, *looking_again)] == ["active: None\n"] * 2
    assert kinetoscope.analyze(tmp_path / trainer / "run").run["num_steps"] in (7, 8)
    assert len(frame_of(tmp_path / trainer / "magic")) == NUM_STEPS


EXAMPLES = {"lightning": "lightning_trainer", "transformers": "transformers_trainer", "accelerate": "accelerate_loop"}


@pytest.mark.parametrize("trainer", EXAMPLES)
def test_the_example_profiles_its_training(trainer, tmp_path):
    example = SCRIPT.parents[3] / "examples" / f"{EXAMPLES[here(trainer)]}.py"
    command = [sys.executable, str(example), "--out", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    steps = frame_of(tmp_path / "run")
    assert len(steps) == 80
    assert (steps["evaluation_ns"] > 0).any()
    assert (tmp_path / "run" / "report.html").exists()
