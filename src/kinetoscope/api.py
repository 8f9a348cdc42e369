"""Function `kinetoscope.profile`, which creates a Profiler with our defaults. No other file chooses defaults."""

import importlib.util
import logging
import os
import sys
import time
from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

import kinetoscope
from kinetoscope.core.job.event import Callback
from kinetoscope.core.job.ranks import derive_run_name, detect_ranks
from kinetoscope.core.job.timestamp import Timestamp
from kinetoscope.core.paths.remote_url import missing_library
from kinetoscope.core.paths.run_folder import require_run_folders
from kinetoscope.errors import FolderNotWritableError, NativeExtensionError, SettingsError, UnsupportedSystemError
from kinetoscope.handlers.json_trace_handler import JSONTraceHandler
from kinetoscope.handlers.top_finding import TopFindingSearch
from kinetoscope.handlers.trackers import LoggedTopFinding, Trackers
from kinetoscope.native import require_recorder
from kinetoscope.recording.markers.schedule import ProfilerAction, Schedule, cyclic_schedule
from kinetoscope.recording.profiler import Profiler
from kinetoscope.recording.run.settings import check_callbacks, check_flag, check_number
from kinetoscope.recording.window.launch_folder import choose_run_folder
from kinetoscope.recording.window.memory_limit import MAX_GROWTH_SHARE, MAX_GROWTH_SHARE_WITH_OPERATORS
from kinetoscope.recording.window.trace_folder import check_num_traces
from kinetoscope.sources.system_profiler import SystemProfiler

if TYPE_CHECKING:
    from kinetoscope.sources.torch_profiler import TorchProfiler
    from kinetoscope.torch.session import Activity

_log = logging.getLogger("kinetoscope")


def profile(
    out: str | os.PathLike[str] = "runs/{time}",
    *,
    schedule: Schedule | None = None,
    torch: "bool | TorchProfiler" = True,
    system: bool | SystemProfiler = True,
    handlers: Callback | Collection[Callback] | None = None,
    sources: Callback | Collection[Callback] = (),
    diagnose: bool = False,
    modules: bool = False,
    run_name: str | None = None,
    first_step: int = 0,
    record_shapes: bool | None = None,
    profile_memory: bool | None = None,
    with_stack: bool | None = None,
    with_flops: bool | None = None,
    activities: "Iterable[Activity] | None" = None,
    experimental_config: Any = None,
    system_interval_s: float | None = None,
    overwrite: bool = False,
    num_traces_to_keep: int = -1,
    upload_to: str | None = None,
    strict: bool = False,
    grace_s: float = 10.0,
    quiet: bool = False,
    report: bool = False,
    redact: Callable[[str], str] | None = None,
    hangs: bool = False,
    slow_steps: bool = False,
    log_to: Any = None,
) -> Profiler:
    """Return a Profiler with our defaults, which writes its traces below ``out``.

        with kinetoscope.profile("runs/digits") as profiler:
            for batch in profiler.batches(loader):
                train(batch)

    Args:
        out: the run's folder. ``{time}`` in it is the start time of the run; `FileNameFormat` has the other variables.
            If an earlier run is in it, this one goes to ``out-2`` and so on, unless ``overwrite``.
        schedule: when to record; by default batch 0 is skipped, batch 1 warms up, batches 2 to 11 are recorded, once:
            `kinetoscope summary` detects growth and periods from eight steps on.
        torch: whether to record torch's operators, if torch is installed, or a `TorchProfiler` with your settings.
        system: whether to record the machine's counters, or a `SystemProfiler` with your settings.
        handlers: consumers of the traces; by default a `JSONTraceHandler` writes and merges them, compressed. Handlers
            and a `TorchProfiler` also write below ``out``, unless they were given a folder.
        sources: additional recorders, such as `GCPauses` (docs/sources.md).
        diagnose: add all sources that findings use; together they take 1 to 2 % of a step of 3 ms.
        modules: record each call of a `torch.nn.Module` (`ModuleCalls`), so that time, FLOPs and memory are known by
            layer; ``diagnose`` does so, too.
        run_name: the name of the run, by default that of its folder.
        first_step: the number of the first step, such as the one at which training resumes from its checkpoint: steps
            are then numbered as in the training run. `cyclic_schedule` still counts from here.
        record_shapes: as for `TorchProfiler`, like the five below. By default allocations and FLOPs are recorded.
        profile_memory: record allocations.
        with_stack: record stacks.
        with_flops: record FLOPs.
        activities: the activities to record.
        experimental_config: torch's experimental options.
        system_interval_s: the seconds between two readings of the machine, by default 0.1.
        overwrite: as for `JSONTraceHandler`.
        num_traces_to_keep: as for `JSONTraceHandler`.
        upload_to: as for `Profiler`. Without the library that it needs, files stay on this machine, and one warning
            names the library.
        strict: as for `Profiler`; also raise where nothing can be recorded.
        grace_s: as for `Profiler`.
        quiet: as for `Profiler`.
        report: whether the run ends with a report: rank 0 writes ``report.html`` into the run's folder, of the ranks
            whose traces are there, in a background process that takes half a minute at most. It needs polars.
        redact: as for `Profiler`.
        hangs: as for `Profiler`.
        slow_steps: as for `Profiler`.
        log_to: the result of `wandb.init()` or `mlflow.start_run()`, a SummaryWriter of TensorBoard, or a list of them.
            After each window they get its step time, phases and memory; at the end the findings and the report, which
            is then written (docs/compat/trackers.md). Training never waits for them.

    Raises:
        SettingsError: for an argument that would have no effect, as ``with_stack`` with a `TorchProfiler` of your own.
            Also the errors of these classes for arguments that cannot work.

    A window is closed early, and one line reports it, if memory grows much while it is open: by a quarter of the
    available memory, or by a sixteenth with torch's operators, which need nine times as much when recording stops.

    If ``out`` cannot be written, or another Profiler is active when this one starts, nothing is recorded, and one
    warning gives the reason; with ``strict`` that raises. The same holds on Windows, which cannot keep the files of a
    run's processes apart (`UnsupportedSystemError`), and without the native extension (`NativeExtensionError`).
    """
    torch_flags = _drop_none(
        record_shapes=record_shapes, profile_memory=profile_memory, with_stack=with_stack, with_flops=with_flops
    )
    _check_flags(diagnose=diagnose, modules=modules, overwrite=overwrite, report=report, **torch_flags)
    check_num_traces(num_traces_to_keep)
    start_timestamp = _make_timestamp(first_step)
    trace_handlers, search = _make_handlers(handlers, report=report, log_to=log_to)
    torch_options = torch_flags | _drop_none(activities=activities, experimental_config=experimental_config)
    writes_file = not any(map(_writes_traces, trace_handlers))
    all_sources = [
        *_make_sources(sources, diagnose=diagnose, modules=modules),
        *_make_system_source(system, system_interval_s),
        *_make_torch_source(torch, torch_options, writes_file=writes_file),
    ]
    file_settings = {"overwrite": overwrite, "num_traces_to_keep": num_traces_to_keep}
    _check_file_settings(file_settings, [*trace_handlers, *all_sources])
    out = _check_out(out)
    try:
        require_run_folders(out)
        require_recorder()
        profiler = Profiler(
            cyclic_schedule(skip_first=1, warmup=1, active=10, per="run") if schedule is None else schedule,
            trace_handlers,
            sources=all_sources,
            run_name=run_name,
            upload_to=upload_to if strict else _drop_unusable_url(upload_to),
            strict=strict,
            grace_s=grace_s,
            quiet=quiet,
            redact=redact,
            hangs=hangs,
            slow_steps=slow_steps,
        )
        needs_folder = any(getattr(callback, "needs_folder", False) for callback in (*trace_handlers, *all_sources))
        # last: a rejected argument leaves no folder
        folder = _choose_folder(out, run_name, overwrite=overwrite or not needs_folder)
    except (UnsupportedSystemError, NativeExtensionError, FolderNotWritableError) as error:
        if strict:
            raise
        return _make_idle_profiler(error)
    _set_defaults(trace_handlers, f"{folder}/traces", file_settings)
    _set_defaults(all_sources, f"{folder}/torch_traces", file_settings)
    profiler.state.run_name = (Path(folder).name or profiler.state.run_name) if run_name is None else run_name
    profiler.state.timestamp = start_timestamp
    profiler.lifecycle.set_search(search)
    profiler.lifecycle.tolerates_active_run = not strict
    profiler.lifecycle.windows.memory_limit.share = (
        MAX_GROWTH_SHARE_WITH_OPERATORS if any(map(_records_operators, all_sources)) else MAX_GROWTH_SHARE
    )
    return profiler


def _make_idle_profiler(reason: Exception) -> Profiler:
    """Return a profiler that records nothing, and log the reason."""
    _log.warning("Nothing is recorded; training continues. %s", reason)
    profiler = Profiler(lambda _: ProfilerAction.SKIP, [], quiet=True, hangs=False, slow_steps=False)
    profiler.lifecycle.tolerates_active_run, profiler.lifecycle.requires_recorder = True, False
    return profiler


def _records_operators(source: object) -> bool:
    module = sys.modules.get("kinetoscope.sources.torch_profiler")
    return module is not None and isinstance(source, module.TorchProfiler)


_MAX_FIRST_STEP = 10**15


def _make_timestamp(first_step: Any) -> Timestamp:
    """Return the timestamp before this step. Its number may be an integer of numpy's or torch's, from a checkpoint."""
    with suppress(TypeError):
        number = index(first_step)
        if 0 <= number <= _MAX_FIRST_STEP and not isinstance(first_step, bool):
            return Timestamp(batch=number)
    raise SettingsError(f"first_step is the number of a step, from 0 to {_MAX_FIRST_STEP:,}; not {first_step!r}.")


def _drop_none(**options: Any) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _check_out(out: Any) -> str:
    """Return ``out`` as a string. Raises `SettingsError` for a value that names no folder."""
    text = os.fspath(out) if isinstance(out, str | os.PathLike) else None
    if not isinstance(text, str) or not text.strip():
        raise SettingsError(f'out is the folder of the run, as in profile("runs/mine"), not {out!r}.')
    return text


def _check_flags(**flags: Any) -> None:
    for name, value in flags.items():
        check_flag(value, name)


_TRACE, _MERGED_TRACE = "ep{epoch}-ba{batch}-rank{rank}.json.gz", "merged_trace.json.gz"


def _make_default_handler() -> JSONTraceHandler:
    folder = "{run_name}/traces"
    return JSONTraceHandler(
        filename=_TRACE,
        remote_file_name=f"{folder}/{_TRACE}",
        merged_trace_filename=_MERGED_TRACE,
        merged_trace_remote_file_name=f"{folder}/{_MERGED_TRACE}",
    )


def _make_handlers(handlers: Any, *, report: bool, log_to: Any) -> tuple[list[Any], TopFindingSearch]:
    """Return the handlers of traces and trackers, and the search for the top finding."""
    all_handlers = [_make_default_handler()] if handlers is None else check_callbacks(handlers, "handlers")
    if report and not any(map(_writes_traces, all_handlers)):
        raise SettingsError(
            "report=True has no effect: no handler in handlers writes traces. Add a JSONTraceHandler()."
        )
    if log_to is None:
        return all_handlers, TopFindingSearch(writes_report=report)
    trackers = Trackers(log_to)
    return [*all_handlers, trackers], LoggedTopFinding(trackers)


def _writes_traces(handler: Any) -> bool:
    return hasattr(type(handler), "recipe")


_DEFAULT_FILE_SETTINGS = {"overwrite": False, "num_traces_to_keep": -1}


def _check_file_settings(file_settings: dict[str, Any], callbacks: list[Any]) -> None:
    """Raise `SettingsError` for a setting of files, if no handler or source writes any."""
    changed = [f"{name}={value!r}" for name, value in file_settings.items() if value != _DEFAULT_FILE_SETTINGS[name]]
    if changed and not any(hasattr(callback, "set_defaults") for callback in callbacks):
        raise SettingsError(f"{changed[0]} has no effect: neither handlers nor torch write files. Leave it out.")


_SYSTEM_INTERVAL_S = 0.1
_DIAGNOSTIC_SOURCES = ("CompileEvents", "GCPauses", "GrowingMemory", "Float64Tensors", "LoaderFacts", "StackSampler")
"""Sources that `diagnose` adds. Their total cost is measured by `benchmarks/sources`."""


def _make_sources(sources: Any, *, diagnose: bool, modules: bool) -> list[Any]:
    """Return the user's sources, and those of the options that are not among them."""
    given = check_callbacks(sources, "sources")
    names = [*_DIAGNOSTIC_SOURCES, "ModuleCalls"] if diagnose else ["ModuleCalls"] if modules else []
    kinds = [getattr(kinetoscope, name) for name in names]
    return [*given, *(kind() for kind in kinds if not any(isinstance(source, kind) for source in given))]


def _make_system_source(system: Any, interval_s: float | None) -> list[Any]:
    if not isinstance(system, bool | SystemProfiler):
        raise SettingsError(f"system must be True, False or a SystemProfiler, not {system!r}.")
    if interval_s is not None:
        check_number(interval_s, "system_interval_s", "seconds", min_value=0.001, max_value=86_400)
    if system is True:
        interval_s = _SYSTEM_INTERVAL_S if interval_s is None else interval_s
        return [SystemProfiler(profile_memory=True, stats_thread_interval_seconds=interval_s)]
    if interval_s is not None:
        raise _make_no_effect_error("system_interval_s", interval_s, "system", system, "stats_thread_interval_seconds")
    return [system] if system else []


def _make_torch_source(torch: Any, options: dict[str, Any], *, writes_file: bool) -> list[Any]:
    """Return the source of torch's operators, if torch is installed; or the user's own.

    Ours writes a file of Kineto's only with ``writes_file``: otherwise a handler's trace contains all of it.
    """
    module = sys.modules.get("kinetoscope.sources.torch_profiler")  # loaded wherever a TorchProfiler exists
    if not isinstance(torch, bool | getattr(module, "TorchProfiler", bool)):
        raise SettingsError(f"torch must be True, False or a TorchProfiler, not {torch!r}.")
    if torch is not True:
        for name, value in options.items():
            if torch or value is not False:
                raise _make_no_effect_error(name, value, "torch", torch, name)
        return [torch] if torch else []
    if importlib.util.find_spec("torch") is None:
        return []
    from kinetoscope.sources.torch_profiler import TorchProfiler

    return [TorchProfiler(**options) if writes_file else TorchProfiler(filename=None, **options)]


def _make_no_effect_error(name: str, value: Any, argument: str, argument_value: Any, other_name: str) -> SettingsError:
    """Return the error for an option that has no effect because of another argument."""
    if argument_value is False:
        return SettingsError(f"{name}={value!r} has no effect with {argument}=False. Leave one of them out.")
    type_name = type(argument_value).__name__
    return SettingsError(
        f"{name}={value!r} has no effect with {argument}={type_name}(...), which has its own settings. Pass it there: "
        f"{type_name}({other_name}={value!r})."
    )


def _set_defaults(callbacks: list[Any], folder: str, file_settings: dict[str, Any]) -> None:
    """Let sources or handlers without a folder of their own write to ``folder``."""
    for callback in callbacks:
        if (set_defaults := getattr(callback, "set_defaults", None)) is not None:
            set_defaults(folder, **file_settings)


def _drop_unusable_url(upload_to: str | None) -> str | None:
    """Return the URL; None with a warning if its library is missing."""
    if isinstance(upload_to, str) and (missing := missing_library(upload_to, "upload_to")):
        _log.warning("Nothing is uploaded, and files stay on this machine. %s", missing)
        return None
    return upload_to


def _choose_folder(out: str, run_name: str | None, *, overwrite: bool) -> str:
    """Return the run's folder: ``out``, or one next to it if that contains an earlier run.

    ``{time}`` in ``out`` becomes a time that is the same on all ranks.
    """
    ranks = detect_ranks()
    if "{time}" in out:
        out = out.replace("{time}", derive_run_name(ranks, time.strftime("%Y%m%d-%H%M%S")))
    return out if overwrite else choose_run_folder(out, ranks, run_name)
