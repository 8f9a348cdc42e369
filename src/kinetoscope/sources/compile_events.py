"""Compilations by torch.compile, with the guard that failed before a recompilation."""

import contextlib
import re
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

from kinetoscope.core.background.private_names import find_all
from kinetoscope.core.job.event import skippable
from kinetoscope.core.job.state import RunState
from kinetoscope.core.paths.short_paths import shorten_paths
from kinetoscope.core.paths.source_files import source_name
from kinetoscope.recording.run.plugin_api import RunContext
from kinetoscope.recording.window.source_events import SourceEvent
from kinetoscope.sources.private_names import (
    compilation_callbacks,
    compilation_id,
    compilation_metrics,
    function_file,
    function_line,
    function_name,
    metrics_fields,
    recompile_reason,
)
from kinetoscope.sources.window_source import WindowSource

_CACHE_PREFIX = re.compile(r"^\d+/\d+(_\d+)?: ")
_SIZE_MISMATCH = re.compile(r"tensor '(.+)' (size|stride) mismatch at index (\d+)\. expected (\S+), actual (\S+)")
_OTHER_MISMATCH = re.compile(r"tensor '(.+)' (.+) mismatch\. expected (\S+), actual (\S+)")
_MAX_GUARD_CHARS = 300


class CompileEvents(WindowSource):
    """Record each compilation by `torch.compile` as a span on the thread that waits for it.

    The span's args are the ``function``, the ``line`` where it starts and, for a recompilation, the ``guard`` that
    failed. They come from the callbacks and the compilation metrics of torch 2.6 and later; where these are missing,
    this is logged once. torch's compiler is never imported for this, so nothing is recorded before the program
    compiles something.
    """

    def __init__(self) -> None:
        super().__init__()
        self._hooks: _CompilationHooks | None = None

    def install(self, run: RunContext) -> None:
        """Register the callbacks if torch's compiler is loaded."""
        self._install_if_loaded(run)

    @skippable
    def batch_start(self, state: RunState, logger: object) -> None:
        """Register the callbacks as soon as torch's compiler is loaded."""
        if self._hooks is None and self._run is not None:
            self._install_if_loaded(self._run)

    def finish(self, run: RunContext) -> None:
        """Record the compilations whose metrics are complete by now."""
        if self._hooks is not None:
            self._hooks.record_finished()

    def remove(self) -> None:
        """Remove the callbacks from torch."""
        hooks, self._hooks = self._hooks, None
        if hooks is not None:
            hooks.remove()

    def _install_if_loaded(self, run: RunContext) -> None:
        callbacks = find_all(*compilation_callbacks)
        if callbacks is not None:
            self._hooks = _CompilationHooks(self, run, *callbacks)


class _CompilationHooks:
    """Callbacks that torch runs around each compilation; its metrics are complete only a moment later.

    They run inside the user's training, so an error disables ``source`` and is not raised.
    """

    def __init__(
        self, source: CompileEvents, run: RunContext, add_start: Any, add_end: Any, remove_start: Any, remove_end: Any
    ) -> None:
        self._run = run
        self._started: tuple[int, int] | None = None
        self._finished: list[tuple[int, int, int, str]] = []
        on_start, on_end = (
            partial(run.call_in_hook, source, self._on_start),
            partial(run.call_in_hook, source, self._on_end),
        )
        self._removals = partial(remove_start, on_start), partial(remove_end, on_end)
        add_start(on_start)
        add_end(on_end)

    def remove(self) -> None:
        """Remove the callbacks from torch."""
        for remove in self._removals:
            with contextlib.suppress(ValueError):  # torch._dynamo.reset() has removed it
                remove()

    def _on_start(self, *_: Any) -> None:
        """Store the start of a compilation, and its thread."""
        self.record_finished()
        self._started = self._run.clock.monotonic_ns(), threading.get_native_id()

    def _on_end(self, *args: Any) -> None:
        """Store the end of a compilation, whose metrics are not complete yet."""
        started, self._started = self._started, None
        if started is not None and self._run.is_recording:
            compile_id = str(getattr(args[0], "compile_id", "")) if args else ""
            self._finished.append((*started, self._run.clock.monotonic_ns(), compile_id))

    def record_finished(self) -> None:
        """Record the compilations that have finished; torch has completed their metrics by now."""
        finished, self._finished = self._finished, []
        for begin_ns, tid, end_ns, compile_id in finished:
            name, args = _describe(_find_metrics(compile_id))
            self._run.add_event(SourceEvent(name, "compile", begin_ns, end_ns, tid, args))


def _find_metrics(compile_id: str) -> Mapping[str, Any]:
    """Return torch's metrics of one compilation, or an empty mapping."""
    find = compilation_metrics.find()
    if find is None or not compile_id:
        return {}
    for metrics in map(vars, reversed(find())):
        for field in metrics_fields:
            field.check(metrics)
        if compilation_id.get(metrics) == compile_id:
            return metrics
    return {}


def _describe(metrics: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the span name and the args of a compilation."""
    function, file, reason = (field.get(metrics) for field in (function_name, function_file, recompile_reason))
    args = {"function": function} if function else {}
    if file:
        args["line"] = f"{source_name(file)}:{function_line.get(metrics) or 0}"
    if reason:
        args["guard"] = format_guard(str(reason))
    return f"compile/{function or 'graph'}", args


def format_guard(reason: str) -> str:
    """Return torch's reason for a failed guard in short form: "`x.size()[0]` was 32, is 17"."""
    first_line = _CACHE_PREFIX.sub("", reason).split("\n", 1)[0]
    condition = first_line.split("  #", 1)[0].strip()
    if match := _SIZE_MISMATCH.match(condition):
        name, attribute, index, old_value, new_value = match.groups()
        return f"`{name}.{attribute}()[{index}]` was {old_value}, is {new_value}"
    if match := _OTHER_MISMATCH.match(condition):
        name, attribute, old_value, new_value = match.groups()
        return f"{attribute} of `{name}` was {old_value}, is {new_value}"
    if condition != first_line.strip():
        return f"`{condition[:_MAX_GUARD_CHARS]}` no longer holds"
    return shorten_paths(condition)[:_MAX_GUARD_CHARS]
