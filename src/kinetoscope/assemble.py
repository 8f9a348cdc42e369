"""assemble: `kinetoscope.profile`, which makes a Profiler with our defaults. No other file chooses defaults."""

import importlib.util
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kinetoscope
from kinetoscope.errors import MissingExtraError
from kinetoscope.handlers.first_finding import FirstFinding
from kinetoscope.handlers.json_trace_handler import JSONTraceHandler
from kinetoscope.recording.contract import check_callbacks
from kinetoscope.recording.profiler import Profiler
from kinetoscope.recording.schedule import Schedule, cyclic_schedule
from kinetoscope.recording.trace_folder import choose_run_folder
from kinetoscope.sources.system_profiler import SystemProfiler
from kinetoscope.training.ranks import current_ranks, restart_count, run_name_all_ranks_agree_on

if TYPE_CHECKING:
    from kinetoscope.sources.torch_profiler import TorchProfiler


def profile(
    out: str | os.PathLike[str] = "runs/{time}",
    *,
    schedule: Schedule | None = None,
    torch: "bool | TorchProfiler" = True,
    system: bool | SystemProfiler = True,
    handlers: Any = None,
    sources: Iterable[Any] = (),
    diagnose: bool = False,
    run_name: str | None = None,
    record_shapes: bool = False,
    profile_memory: bool = True,
    with_stack: bool = False,
    with_flops: bool = True,
    system_interval_s: float = 0.1,
    overwrite: bool = False,
    num_traces_to_keep: int = -1,
    upload_to: str | None = None,
    strict: bool = False,
    grace_s: float = 10.0,
    quiet: bool = False,
    report: bool = False,
    redact: Callable[[str], str] | None = None,
) -> Profiler:
    """A Profiler with our defaults, which writes its traces below ``out``.

        with kinetoscope.profile("runs/digits") as profiler:
            for batch in profiler.batches(loader):
                train(batch)

    - ``out``: the run's folder. ``{time}`` in it is the time when the run began; `FileNameFormat` has the other
      variables.
    - ``schedule``: when to record; by default batch 0 is skipped, batch 1 warms up, batches 2 to 11 are recorded, once:
      `kinetoscope summary` tells growth and periods from eight steps on.
    - ``torch``, ``system``: whether to record torch's operators and the machine's counters, or a `TorchProfiler` and a
      `SystemProfiler` with your settings. Operators are recorded only if torch is installed.
    - ``handlers``: what happens to the traces; by default a `JSONTraceHandler` writes and merges them. Handlers and a
      `TorchProfiler` also write below ``out``, unless they were given a folder.
    - ``sources``: what else is recorded, such as `GCPauses` (docs/sources.md). ``diagnose`` adds all of those that
      findings use; together they take about 1 % of a step of 3 ms.
    - ``report``: whether the run ends with a report: rank 0 writes ``report.html`` into the run's folder, of the ranks
      whose traces are there, in a process beside training that takes half a minute at most. It needs polars.
    - ``record_shapes``, ``profile_memory``, ``with_stack``, ``with_flops``: as for `TorchProfiler`;
      ``system_interval_s``: seconds between two readings of the machine; the others as for `JSONTraceHandler` and
      `Profiler`.

    Raises what these classes raise for arguments that cannot work.
    """
    _check_can_report(report)
    folder = _run_folder(str(out))
    keep = {"overwrite": overwrite, "num_traces_to_keep": num_traces_to_keep}
    options = {"record_shapes": record_shapes, "profile_memory": profile_memory}
    options |= {"with_stack": with_stack, "with_flops": with_flops}
    asked = check_callbacks(sources, "sources")
    asked += _diagnosing(asked) if diagnose else []
    asked += _system_source(system, system_interval_s)
    asked += _torch_source(torch, options)
    handlers = [JSONTraceHandler()] if handlers is None else check_callbacks(handlers, "handlers")
    profiler = Profiler(
        schedule or cyclic_schedule(skip_first=1, warmup=1, active=10, per="run"),
        _with_defaults(handlers, f"{folder}/traces", keep),
        sources=_with_defaults(asked, f"{folder}/torch_traces", keep),
        run_name=run_name or Path(folder).name,
        upload_to=upload_to,
        strict=strict,
        grace_s=grace_s,
        quiet=quiet,
        redact=redact,
    )
    profiler.run.first_finding = FirstFinding(writes_report=report)
    return profiler


def _check_can_report(report: bool) -> None:
    if report and importlib.util.find_spec("polars") is None:
        raise MissingExtraError(
            "report=True needs polars, which is not installed. Install it: pip install 'kinetoscope[analysis]'"
        )


_DIAGNOSING = ("CompileEvents", "GCPauses", "GrowingMemory", "Float64Tensors", "LoaderFacts", "StackSampler")
"""The sources that `diagnose` adds. Together they must cost less than 1 % of a step of 3 ms (`benchmarks/sources`)."""


def _diagnosing(asked: list[Any]) -> list[Any]:
    """A source of each of these classes that the user has not brought along."""
    kinds = [getattr(kinetoscope, name) for name in _DIAGNOSING]
    return [kind() for kind in kinds if not any(isinstance(source, kind) for source in asked)]


def _system_source(system: bool | SystemProfiler, interval_s: float) -> list[Any]:
    if system is True:
        return [SystemProfiler(profile_memory=True, stats_thread_interval_seconds=interval_s)]
    return [system] if system else []


def _torch_source(torch: "bool | TorchProfiler", options: dict[str, Any]) -> list[Any]:
    """The source of torch's operators, if torch is installed; or the user's own."""
    if torch is not True:
        return check_callbacks(torch, "torch") if torch else []
    if importlib.util.find_spec("torch") is None:
        return []
    from kinetoscope.sources.torch_profiler import TorchProfiler

    return [TorchProfiler(**options)]


def _with_defaults(callbacks: list[Any], folder: str, keep: dict[str, Any]) -> list[Any]:
    """The sources or handlers. Those without a folder of their own write to ``folder``."""
    for callback in callbacks:
        if (set_defaults := getattr(callback, "set_defaults", None)) is not None:
            set_defaults(folder, **keep)
    return callbacks


_MOST_FOLDERS = 1000


def _run_folder(out: str) -> str:
    """``out`` with ``{time}`` replaced by a time that is the same on all ranks."""
    head, found, tail = out.partition("{time}")
    if not found:
        return out
    ranks = current_ranks()
    name = run_name_all_ranks_agree_on(ranks, time.strftime("%Y%m%d-%H%M%S"))
    folders = (f"{head}{name}{number}{tail}" for number in ("", *map("-{}".format, range(2, _MOST_FOLDERS))))
    return choose_run_folder(folders, ranks, restart_count())
