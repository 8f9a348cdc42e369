"""Costs of profiling a Composer Trainer, in milliseconds per batch.

The network is so small that a batch is almost only the work of Trainer and profiler. The Trainers take turns. The torch
profiler is off, the system profiler on, merging off, for both profilers. We measure from the start of a batch to the
start of the next one. This includes what a profiler does in the loop and what its threads take from it, but not the end
of `Trainer.fit`.

A profiler's cost does not depend on the length of a batch. As a percentage, it is given for a batch on which Composer's
own profiler costs 15 % while it skips. (Batches of that length were timed before, but the network's own time varied
more than the cost.) Composer's engine does more work with any profiler: that is the cost of "one that does nothing".
"One that hears of events" adds one empty callback to the Trainer's list, and "three that hear" adds three, as many as
ours.
"""

import random
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.suite import Measure, SuiteResult

_STUBS = Path(__file__).parents[2] / "tests" / "support" / "composer_stubs"
_KINETOSCOPE, _COMPOSER = "kinetoscope.composer", "composer.profiler"
_NO_PROFILER = "no profiler"
_WIDTH, _BATCH_SIZE = 16, 4
_NUM_WARM_UP_BATCHES = 4
_COMPOSER_SKIP_SHARE = 0.15  # of a batch, while Composer's profiler skips


def run(quick: bool) -> SuiteResult:
    """Measure Trainers with no profiler, ours and Composer's, skipping and active."""
    sys.path.append(str(_STUBS))
    warnings.simplefilter("ignore")
    num_rounds, num_batches = (2, 14) if quick else (24, 200)
    kinds: dict[str, Callable[[str], Any]] = {
        _NO_PROFILER: lambda folder: None,
        "one that does nothing": lambda folder: _EmptyProfiler(),
        "one that hears of events": lambda folder: _CallbackProfiler(1),
        "three that hear": lambda folder: _CallbackProfiler(3),
    }
    for module, who in ((_KINETOSCOPE, "ours"), (_COMPOSER, "Composer's")):
        kinds[f"{who}, skipping"] = lambda folder, module=module: _make_profiler(module, folder, skips=True)
        kinds[f"{who}, active"] = lambda folder, module=module: _make_profiler(module, folder, skips=False)
    rounds: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    for _ in range(num_rounds):
        for name in random.sample(list(kinds), len(kinds)):
            with tempfile.TemporaryDirectory() as folder:
                rounds[name].append(_measure_batch_ms(kinds[name](folder), num_batches))
    return _make_result(rounds)


class _EmptyProfiler:
    """An empty profiler. Its cost is what the engine itself does for any profiler."""

    remote_filenames: tuple[str, ...] = ()

    def bind_to_state(self, state: Any) -> None:
        state.profiler = self

    def marker(self, *arguments: Any, **options: Any) -> "_EmptyProfiler":
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exception: object) -> None:
        pass

    def start(self) -> None:
        pass

    finish = start


class _CallbackProfiler(_EmptyProfiler):
    """The same, with empty callbacks."""

    def __init__(self, num_callbacks: int) -> None:
        self._num_callbacks = num_callbacks

    def bind_to_state(self, state: Any) -> None:
        from composer import Callback

        super().bind_to_state(state)
        empty = type("Nothing", (Callback,), {})
        state.callbacks.extend(empty() for _ in range(self._num_callbacks))


def _make_profiler(module: str, folder: str, *, skips: bool) -> Any:
    names = import_module(module)
    schedule = names.cyclic_schedule(warmup=0, active=10, repeat=0)
    return names.Profiler(
        schedule=(lambda state: names.ProfilerAction.SKIP) if skips else schedule,
        trace_handlers=[names.JSONTraceHandler(folder=f"{folder}/traces", merged_trace_filename=None)],
        torch_prof_profile_memory=False,
        torch_prof_with_flops=False,
    )


def _measure_batch_ms(profiler: Any, num_batches: int) -> tuple[float, float]:
    """Return elapsed time and CPU time of a batch, from its start to the start of the next."""
    import torch
    from composer import Callback, Trainer
    from composer.models import ComposerClassifier
    from torch.utils.data import DataLoader, TensorDataset

    class Watch(Callback):
        def __init__(self) -> None:
            self.starts: list[tuple[float, float]] = []

        def batch_start(self, state: Any, logger: Any) -> None:
            self.starts.append((time.perf_counter(), time.process_time()))

    torch.set_num_threads(1)
    torch.manual_seed(0)
    num_samples = num_batches * _BATCH_SIZE
    data = TensorDataset(torch.randn(num_samples, _WIDTH), torch.randint(0, 2, (num_samples,)))
    layers = (torch.nn.Linear(_WIDTH, _WIDTH), torch.nn.ReLU(), torch.nn.Linear(_WIDTH, 2))
    watch = Watch()
    trainer = Trainer(
        model=ComposerClassifier(torch.nn.Sequential(*layers), num_classes=2),
        train_dataloader=DataLoader(data, batch_size=_BATCH_SIZE),
        max_duration="1ep",
        device="cpu",
        progress_bar=False,
        callbacks=[watch],
        profiler=profiler,
    )
    trainer.fit()
    trainer.close()
    starts = watch.starts[_NUM_WARM_UP_BATCHES:]
    passed, processor = (
        1e3 * (last - first) / (len(starts) - 1) for first, last in zip(starts[0], starts[-1], strict=True)
    )
    return passed, processor


def _make_result(rounds: dict[str, list[tuple[float, float]]]) -> SuiteResult:
    measures: list[Measure] = []
    for column, what in enumerate(("Trainer slower", "more processor time")):
        typical = {name: _mean_of_fastest([times[column] for times in of_kind]) for name, of_kind in rounds.items()}
        base = typical.pop(_NO_PROFILER)
        batch = (typical["Composer's, skipping"] - base) / _COMPOSER_SKIP_SHARE
        for name, value in typical.items():
            detail = f"{value - base:.3f} ms more than {base:.2f}"
            measures.append(Measure(f"{what}, {name}", 100 * (value - base) / batch, "%", detail))
    passed = {name: sorted(times[0] for times in of_kind) for name, of_kind in rounds.items()}
    return SuiteResult(
        suite="composer_trainer",
        title="what a profiler costs a Composer Trainer, without torch's operators",
        measures=measures,
        notes=[
            "Mean of the quarter of rounds that were disturbed least; a window is saved every ten batches.",
            "Shares are of a batch on which Composer's own profiler costs 15 % while it skips.",
        ],
        times_ns={name: {"best": 1e6 * of[0], "median": 1e6 * statistics.median(of)} for name, of in passed.items()},
    )


def _mean_of_fastest(means: list[float]) -> float:
    return statistics.fmean(sorted(means)[: max(1, len(means) // 4)])
