"""Make the 60 inputs of `make same`: ``python -m support.same_outputs.inputs FOLDER``, with the older version.

Simulated runs, traces of other writers, recorded runs and the folder of a killed run; of the second and the last also
damaged copies.
"""

import json
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import get_args

from fuzz.corpus import write_corpus
from trainsim import FaultKind, planted_settings, random_settings, simulate

NUM_RANDOM, NUM_PLANTED, NUM_FOREIGN, NUM_DAMAGED_FOLDERS = 20, 10, 20, 4

_TRAIN = """
import os, sys, torch, kinetoscope
torch.manual_seed(0)
torch.set_num_threads(1)
folder, kill = sys.argv[1], sys.argv[2] == "kill"
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.Adam(model.parameters())
with kinetoscope.profile(folder, **OPTIONS) as profiler:
    for step in profiler.batches(range(60)):
        with kinetoscope.marker("forward"):
            loss = model(torch.randn(16, 64)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if kill and step == 40:
            os.kill(os.getpid(), 9)
"""
_STOCK = """
import sys, torch
from torch.profiler import profile, schedule
model, options = torch.nn.Linear(32, 32), dict(OPTIONS)
with profile(schedule=schedule(wait=1, warmup=1, active=6), **options) as profiler:
    for _ in range(8):
        model(torch.randn(8, 32)).sum().backward()
        profiler.step()
profiler.export_chrome_trace(sys.argv[1])
"""
_RECORDED = {
    "recorded": {},
    "recorded-diagnose": {"diagnose": True},
    "recorded-own": {"torch": False},
}
_STOCK_OPTIONS = {"stock": {}, "stock-stacks": {"with_stack": True, "record_shapes": True, "profile_memory": True}}


def make_inputs(folder: Path) -> None:
    """Make the inputs in a new folder, each a file or a folder of its own."""
    folder.mkdir(parents=True)
    for seed in range(NUM_RANDOM):
        _simulate(folder / f"random-{seed}", random_settings(seed))
    kinds = random.Random(0).sample(get_args(FaultKind), NUM_PLANTED)
    for kind in kinds:
        _simulate(folder / f"planted-{kind}", planted_settings(7, kind))
    _make_foreign(folder)
    for name, options in _STOCK_OPTIONS.items():
        _run(_STOCK.replace("OPTIONS", repr(options)), folder / f"{name}.json")
    for name, options in _RECORDED.items():
        _run(_TRAIN.replace("OPTIONS", repr(options)), folder / name, "end")
    killed = folder / "killed"
    _run(_TRAIN.replace("OPTIONS", "{'diagnose': True}"), killed, "kill", status=-signal.SIGKILL)
    for seed in range(NUM_DAMAGED_FOLDERS):
        _damage_folder(copy_input(killed, folder / f"killed-damaged-{seed}"), random.Random(seed))


def copy_input(source: Path, target: Path) -> Path:
    """Copy a file, or a folder without the named pipes that a killed process leaves; return the copy."""
    if source.is_dir():
        shutil.copytree(source, target, ignore=lambda at, names: [one for one in names if Path(at, one).is_fifo()])
    else:
        shutil.copyfile(source, target)
    return target


def _simulate(folder: Path, settings: object) -> None:
    folder.mkdir()
    simulate(settings).write(folder)  # type: ignore[arg-type]


def _make_foreign(folder: Path) -> None:
    """Write traces of other writers, and damaged copies of them."""
    corpus = folder / "corpus"
    write_corpus(corpus)
    traces = [path.read_bytes() for path in sorted(corpus.iterdir())]
    shutil.rmtree(corpus)
    chance = random.Random(0)
    for number in range(NUM_FOREIGN):
        content = bytearray(traces[number % len(traces)])
        if number >= len(traces) or number % 2:
            begin = chance.randrange(len(content))
            content[begin : begin + chance.choice([1, 8, 64])] = chance.choice([b"", b"]", b'"', b"nan", b"\xff"])
        (folder / f"foreign-{number}.json").write_bytes(content)


def _damage_folder(folder: Path, chance: random.Random) -> None:
    """Cut, empty, delete or overwrite some of the folder's files."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    for path in chance.sample(files, min(3, len(files))):
        content = path.read_bytes()
        begin = chance.randrange(len(content))
        fault = chance.randrange(4)
        if fault == 0:
            path.unlink()
        else:
            path.write_bytes(content[:begin] + (b"", b"\0" * 64, chance.randbytes(64) + content[begin:])[fault - 1])


def _run(program: str, *arguments: str | Path, status: int = 0) -> None:
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True)
    if done.returncode != status:
        raise SystemExit(f"A program that makes an input ended with {done.returncode}:\n{done.stderr}")


if __name__ == "__main__":
    make_inputs(Path(sys.argv[1]))
    print(json.dumps(sorted(path.name for path in Path(sys.argv[1]).iterdir())))
