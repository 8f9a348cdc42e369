"""Run a script of tests/support/validation or of this folder under one profiler.

``python switch.py TOOL OUT SCRIPT ARGUMENTS``

The training asks the module `watching` for its loop. Here the loop gets the profiler that the command line names, used
as the profiler's documentation recommends. The times at which the loop requested each batch are written by the same
code for all.
"""

import contextlib
import json
import os
import runpy
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

_HERE = Path(__file__).parent
_SCRIPTS = [_HERE / "scripts", _HERE.parents[1] / "tests" / "support" / "validation" / "scripts"]


class Unprofiled:
    """The loop without a tool, and the base of the other loops. It stores the last model."""

    model: Any = None

    def running(self, out: Path) -> AbstractContextManager[Any]:
        return contextlib.nullcontext()

    def batches(self, loader: Iterable[Any]) -> Iterator[Any]:
        return iter(loader)

    def end_step(self) -> None:
        """End the code of a step, if other code of the loop comes after it."""

    def evaluation(self) -> AbstractContextManager[Any]:
        return contextlib.nullcontext()


class Kinetoscope(Unprofiled):
    """`kinetoscope.profile` and `batches`, as in the README; the number of recorded steps is ``RECORDED_STEPS``."""

    @contextlib.contextmanager
    def running(self, out: Path) -> Iterator[None]:
        import kinetoscope

        active = int(os.environ["RECORDED_STEPS"])
        schedule = kinetoscope.cyclic_schedule(skip_first=1, warmup=1, active=active, per="run")
        with kinetoscope.profile(out, schedule=schedule, diagnose=True) as profiler:
            self.batches, self.evaluation = profiler.batches, profiler.eval
            yield


class TraceML(Unprofiled):
    """`init(mode="auto")` and `trace_step` around the code of a step, as in its quickstart. It times DataLoaders."""

    def __init__(self) -> None:
        self._step = contextlib.ExitStack()

    @contextlib.contextmanager
    def running(self, out: Path) -> Iterator[None]:
        import traceml_ai

        traceml_ai.init(mode="auto")
        yield

    def batches(self, loader: Any) -> Iterator[Any]:
        from torch.utils.data import DataLoader
        from traceml_ai import trace_step

        for batch in loader if isinstance(loader, DataLoader) else DataLoader(loader, batch_size=None):
            with self._step:
                self._step.enter_context(trace_step(self.model))
                yield batch

    def end_step(self) -> None:
        self._step.close()


_TOOLS: dict[str, Callable[[], Unprofiled]] = {"none": Unprofiled, "kinetoscope": Kinetoscope, "traceml": TraceML}


def main() -> None:
    tool_name, out, script, *arguments = sys.argv[1:]
    sys.path[:0] = map(str, _SCRIPTS)
    _patch_watching(_TOOLS[tool_name](), Path(out))
    path = next(folder / script for folder in _SCRIPTS if (folder / script).exists())
    sys.argv = [str(path), out, *arguments]
    runpy.run_path(str(path), run_name="__main__")


def _patch_watching(tool: Unprofiled, out: Path) -> None:
    import watching

    make_model = watching.make_model

    def make_and_keep(*sizes: int, **named_sizes: int) -> Any:
        tool.model = make_model(*sizes, **named_sizes)
        return tool.model

    watching.make_model = make_and_keep
    watching.watched = lambda arguments: _time_loop(tool, out)
    watching.end_step = tool.end_step
    watching.evaluation = lambda: tool.evaluation()


@contextlib.contextmanager
def _time_loop(tool: Unprofiled, out: Path) -> Iterator[Callable[[Iterable[Any]], Iterator[Any]]]:
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    moments_ns: list[int] = []
    try:
        with tool.running(out):
            yield lambda loader: _time_batches(tool.batches(loader), moments_ns)
    finally:
        out.with_name(f"{out.name}-rank{os.environ.get('RANK', 0)}.json").write_text(json.dumps(moments_ns))


def _time_batches(batches: Iterable[Any], moments_ns: list[int]) -> Iterator[Any]:
    moments_ns.append(time.monotonic_ns())
    for batch in batches:
        yield batch
        moments_ns.append(time.monotonic_ns())


if __name__ == "__main__":
    main()
