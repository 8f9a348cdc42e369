"""The pages of findings: one per kind, in one form, with code and commands that run."""

import contextlib
import gc
import random
import re
import shlex
import threading

import pytest

import kinetoscope
from kinetoscope.analysis.findings.explanations import FIRST_SECTIONS, explanations
from kinetoscope.analysis.findings.finding import build_finding
from kinetoscope.analysis.findings.rule import load_rules
from kinetoscope.cli import main
from trainsim import Settings, simulate

KINDS = sorted(rule.kind for rule in load_rules())
BLOCK = re.compile(r"```python\n(.*?)```", re.S)
MAX_MEANING = 57
"""Characters of a meaning: with its kind, it fits on a line of the list."""
IMPORTS = """
import gc, os, random, threading
from contextlib import nullcontext

import kinetoscope
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler, RandomSampler, TensorDataset
"""
EQUAL = {"synchronisation": "total", "small_kernels": "loss", "float64": "inputs", "memory_limit": "hidden"}
"""Results that the code after the fix computes as well as the code before it."""


def test_each_kind_has_a_page_and_each_page_is_of_a_kind():
    assert list(explanations()) == KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_has_the_form_of_all(kind):
    explanation = explanations()[kind]
    assert list(explanation.sections) == [*FIRST_SECTIONS, "Detection and limits"]
    assert len(explanation.meaning) <= MAX_MEANING
    assert re.fullmatch(r"[^.\n]+(\.\w[^.\n]+)?\.", explanation.meaning), "one sentence on one line"
    assert re.fullmatch(r"```sh\n[^\n]+\n```", explanation.sections["Check"]), "one command"
    fix = explanation.first_sections()["Fix"]
    assert re.fullmatch(r".+\n\nBefore:\n\n```python\n.*?```\n\nAfter:\n\n```python\n.*?```", fix, re.S)


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_that_a_finding_names_explains_its_kind(kind, capsys):
    link = build_finding(kind, "", "", confidence="low", evidence={}).link
    command, *arguments = shlex.split(link)
    assert command == "kinetoscope"
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith(f"{kind}: {explanations()[kind].meaning}")


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "first"
    simulate(Settings(num_ranks=2, num_steps=12)).write(folder)
    return folder


@pytest.fixture(scope="module")
def recorded_run(tmp_path_factory):
    """A run with a pulse, which simulated ones do not have."""
    folder = tmp_path_factory.mktemp("runs") / "recorded"
    with kinetoscope.profile(folder, torch=False, quiet=True) as profiler:
        for _ in profiler.batches(range(14)):
            pass
    return folder


@pytest.mark.parametrize("kind", KINDS)
def test_the_command_that_checks_a_finding_runs(kind, run_folder, recorded_run, monkeypatch, capsys):
    monkeypatch.setenv("BROWSER", "true")
    if kind == "hang":
        run_folder = recorded_run
    (command,) = re.findall(r"```sh\n(.*)\n```", explanations()[kind].sections["Check"])
    program, *arguments = shlex.split(command.replace("RUN", str(run_folder)).replace("RANK", "1"))
    if program == "kinetoscope":
        assert main([*arguments, "--no-cache"] if arguments[0] in ("summary", "whatif") else arguments) == 0
        assert capsys.readouterr().out
    else:
        assert program in ("python", "nvidia-smi"), "a program of Python's or of the driver's"


@pytest.fixture(scope="module")
def process_group():
    """A process group of one rank, without which the code on communication does not run."""
    torch = pytest.importorskip("torch")
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield torch.distributed
    torch.distributed.destroy_process_group()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.usefixtures("process_group")
def test_the_code_before_and_after_the_fix_runs(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before, after, *others = BLOCK.findall(explanations()[kind].sections["Fix"])
    results = []
    for code in (before, after, *(after + other for other in others)):
        names = training()
        known = ", ".join(name for name in names if not name.startswith("_"))
        with as_before():
            try:
                exec(compile(code, f"{kind}.md", "exec"), names)
            except NameError as error:
                error.add_note(f"The code of the pages may use what training() in this file returns: {known}.")
                raise
            results.append(names)
            use(names)
    if kind in EQUAL:
        torch = pytest.importorskip("torch")
        old, new = (torch.as_tensor(names[EQUAL[kind]]).double() for names in results[:2])
        assert torch.allclose(old, new, rtol=1e-5)


@contextlib.contextmanager
def as_before():
    """Restore the settings of the process that code of the pages changes."""
    torch = pytest.importorskip("torch")
    num_threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)
        torch.set_float32_matmul_precision(precision)
        gc.enable()
        gc.unfreeze()
        torch._dynamo.reset()


def training():
    """Return the names that the code of the pages takes for granted."""
    torch = pytest.importorskip("torch")
    names = {}
    exec(IMPORTS, names)
    torch.manual_seed(0)
    device, model = torch.device("cpu"), torch.nn.Linear(4, 2)
    images, labels = torch.randn(160, 4), torch.randint(2, (160,))
    dataset = names["TensorDataset"](images, labels)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    loss_function = torch.nn.functional.cross_entropy

    def train_step(images, labels):
        optimizer.zero_grad()
        loss = loss_function(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return names | {
        "dataset": dataset,
        "images": images,
        "labels": labels,
        "loader": names["DataLoader"](dataset, batch_size=64),
        "lengths": [random.Random(index).randrange(100) for index in range(160)],
        "array": torch.randn(8, 4).double().numpy(),
        "model": model,
        "optimizer": optimizer,
        "loss_function": loss_function,
        "train_step": train_step,
        "log_statistics": lambda model: None,
        "loss": loss_function(model(images), labels),
        "losses": [],
        "total": torch.zeros(()),
        "block": torch.nn.Linear(4, 4),
        "hidden": torch.randn(8, 4),
        "outputs": torch.randn(8, 4),
        "targets": torch.randn(8, 4),
        "stage": names["PipelineStage"](model, 0, 1, device),
        "state": {"model": model.state_dict()},
        "saving": None,
        "device": device,
        "step": 500,
        "epoch": 0,
        "rank": 0,
        "world_size": 1,
        "local_world_size": 1,
        "num_workers": 2,
    }


def use(names):
    """Use what the code of a page made: load a batch, train a step, record a loop, wait for what saves."""
    torch = pytest.importorskip("torch")
    images, _ = next(iter(names["loader"]))
    names["model"](images)
    if "schedule" in names:
        names["schedule"].step(torch.randn(16, 4), target=torch.randint(2, (16,)))
    if isinstance(saving := names["saving"], threading.Thread):
        saving.join()
    elif saving is not None:
        saving.result()
    if "profiler" in names:
        with names["profiler"] as profiler:
            for batch in profiler.batches(names["loader"]):
                names["train_step"](*batch)
