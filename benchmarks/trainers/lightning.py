"""Costs of profiling a fit of Lightning, compared with its SimpleProfiler and PyTorchProfiler.

Fits with different profilers take turns. A callback that all fits have times each step, from the start of its batch to
that of the next one: so what a profiler does in the loop counts, and what it does at the end of the fit does not. Torch
runs on the CPU, with one thread.

SimpleProfiler times Lightning's actions. PyTorchProfiler is torch.profiler, by default in windows of three steps after
every two; in one window it records operators only, which is a part of what `kinetoscope.profile` records.
"""

import logging
import random
import statistics
import tempfile
import time
import warnings
from collections.abc import Callable
from typing import Any

import kinetoscope
from benchmarks.suite import Measure, SuiteResult
from kinetoscope.integrations.lightning import KinetoscopeProfiler

_NO_PROFILER = "no profiler"
_WIDTH, _BATCH_SIZE = 256, 32
_NUM_WARM_UP_BATCHES = 4


def run(quick: bool) -> SuiteResult:
    """Measure fits with no profiler, Lightning's two and ours, outside of its window, within one, and by default."""
    warnings.simplefilter("ignore")
    for name in ("lightning.pytorch.utilities.rank_zero", "lightning.fabric.utilities.rank_zero", "kinetoscope"):
        logging.getLogger(name).setLevel(logging.ERROR)
    num_rounds, num_batches = (2, 40) if quick else (12, 216)
    rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in _PROFILERS}
    for _ in range(num_rounds):
        for name in random.sample(list(_PROFILERS), len(_PROFILERS)):
            make, first = _PROFILERS[name]
            with tempfile.TemporaryDirectory() as folder:
                rounds[name].append(_measure_step_ms(make(folder), num_batches, first))
    return _make_result(rounds, num_batches)


def _make_simple(folder: str) -> Any:
    from lightning.pytorch.profilers import SimpleProfiler

    return SimpleProfiler(dirpath=folder, filename="simple")


def _make_pytorch(folder: str, **options: Any) -> Any:
    from lightning.pytorch.profilers import PyTorchProfiler

    return PyTorchProfiler(dirpath=folder, filename="pytorch", **options)


def _make_pytorch_in_window(folder: str) -> Any:
    from torch.profiler import schedule

    return _make_pytorch(folder, schedule=schedule(wait=0, warmup=1, active=10_000))


def _make_kinetoscope(folder: str, **options: Any) -> Any:
    return KinetoscopeProfiler(f"{folder}/run", quiet=True, **options)


def _make_kinetoscope_in_window(folder: str) -> Any:
    return _make_kinetoscope(folder, schedule=kinetoscope.cyclic_schedule(warmup=1, active=10_000, per="run"))


def _make_kinetoscope_outside_window(folder: str) -> Any:
    return _make_kinetoscope(folder, schedule=kinetoscope.cyclic_schedule(skip_first=1_000_000, per="run"))


def _make_kinetoscope_without_operators(folder: str) -> Any:
    """Return a profiler in its window without torch's operators, which records what SimpleProfiler does and more."""
    schedule = kinetoscope.cyclic_schedule(warmup=1, active=10_000, per="run")
    return _make_kinetoscope(folder, schedule=schedule, torch=False, system=False)


_PROFILERS: dict[str, tuple[Callable[[str], Any], int]] = {
    _NO_PROFILER: (lambda folder: None, _NUM_WARM_UP_BATCHES),
    "SimpleProfiler": (_make_simple, _NUM_WARM_UP_BATCHES),
    "ours, without operators, in its window": (_make_kinetoscope_without_operators, _NUM_WARM_UP_BATCHES),
    "PyTorchProfiler, in its window": (_make_pytorch_in_window, _NUM_WARM_UP_BATCHES),
    "ours, in its window": (_make_kinetoscope_in_window, _NUM_WARM_UP_BATCHES),
    "ours, outside of its window": (_make_kinetoscope_outside_window, _NUM_WARM_UP_BATCHES),
    "PyTorchProfiler, by default": (_make_pytorch, 1),
    "ours, by default": (_make_kinetoscope, 1),
}
"""Return the factory of a fit's profiler, and the first step that is timed."""


def _measure_step_ms(profiler: Any, num_batches: int, first: int) -> tuple[float, float]:
    """Return elapsed time and CPU time of a step, as means of a fit."""
    import lightning
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    class Watch(lightning.Callback):
        def __init__(self) -> None:
            self.starts: list[tuple[float, float]] = []

        def on_train_batch_start(self, *arguments: Any) -> None:
            self.starts.append((time.perf_counter(), time.process_time()))

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            layers = [layer for _ in range(3) for layer in (torch.nn.Linear(_WIDTH, _WIDTH), torch.nn.ReLU())]
            self.layers = torch.nn.Sequential(*layers)

        def training_step(self, batch: Any, number: int) -> Any:
            return self.layers(batch[0]).square().mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=1e-3)

    torch.set_num_threads(1)
    torch.manual_seed(0)
    watch, data = Watch(), TensorDataset(torch.randn(num_batches * _BATCH_SIZE, _WIDTH))
    names = ("logger", "enable_progress_bar", "enable_model_summary", "enable_checkpointing")
    trainer = lightning.Trainer(
        accelerator="cpu", max_epochs=1, callbacks=[watch], profiler=profiler, **dict.fromkeys(names, False)
    )
    trainer.fit(Module(), DataLoader(data, batch_size=_BATCH_SIZE))
    starts = watch.starts[first:]
    passed, processor = (
        1e3 * (end - begin) / (len(starts) - 1) for begin, end in zip(starts[0], starts[-1], strict=True)
    )
    return passed, processor


def _make_result(rounds: dict[str, list[tuple[float, float]]], num_batches: int) -> SuiteResult:
    measures: list[Measure] = []
    for column, what in enumerate(("step slower", "more processor time")):
        typical = {name: _mean_of_fastest([times[column] for times in of_kind]) for name, of_kind in rounds.items()}
        base = typical.pop(_NO_PROFILER)
        for name, ms in typical.items():
            detail = f"{ms - base:.3f} ms more than {base:.2f}"
            measures.append(Measure(f"{what}, {name}", 100 * (ms - base) / base, "%", detail))
        whole = (typical["ours, by default"] - typical["ours, outside of its window"]) * num_batches
        measures.append(Measure(f"{what}, all of a window of ten steps", whole, "ms", "with the saving of its trace"))
    passed = {name: [times[0] for times in of_kind] for name, of_kind in rounds.items()}
    return SuiteResult(
        suite="lightning",
        title="what a profiler costs a step of Lightning's Trainer",
        measures=measures,
        notes=[
            "Mean of the quarter of rounds that were disturbed least.",
            "By default PyTorchProfiler records three steps of five, and ours ten of the fit.",
        ],
        times_ns={name: {"best": 1e6 * min(of), "median": 1e6 * statistics.median(of)} for name, of in passed.items()},
    )


def _mean_of_fastest(means: list[float]) -> float:
    return statistics.fmean(sorted(means)[: max(1, len(means) // 4)])
