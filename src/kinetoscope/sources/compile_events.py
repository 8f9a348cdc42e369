"""sources: what torch.compile compiles during training, and which guard failed before it compiled again."""

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
    of_metrics,
    recompile_reason,
)
from kinetoscope.sources.window_source import WindowSource

_OF_CACHE = re.compile(r"^\d+/\d+(_\d+)?: ")
_SIZE = re.compile(r"tensor '(.+)' (size|stride) mismatch at index (\d+)\. expected (\S+), actual (\S+)")
_OTHER = re.compile(r"tensor '(.+)' (.+) mismatch\. expected (\S+), actual (\S+)")
_LONGEST = 300


class CompileEvents(WindowSource):
    """Records each compilation by `torch.compile` as a span on the thread that waits for it.

    Its args are the ``function``, the ``line`` where that begins, and, if it was compiled before, the ``guard`` that
    failed, in words. They come from torch's callbacks and its metrics of compilations, as torch 2.6 and later have
    them. Where these are missing, the log says so once. Nothing is recorded as long as nothing was compiled: torch's
    compiler is never imported for this.
    """

    def __init__(self) -> None:
        super().__init__()
        self._watch: _Watch | None = None

    def install(self, run: RunContext) -> None:
        self._watch_if_loaded(run)

    @skippable
    def batch_start(self, state: RunState, logger: object) -> None:
        if self._watch is None and self._run is not None:
            self._watch_if_loaded(self._run)

    def finish(self, run: RunContext) -> None:
        if self._watch is not None:
            self._watch.note_ended()

    def remove(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.remove()

    def _watch_if_loaded(self, run: RunContext) -> None:
        callbacks = find_all(*compilation_callbacks)
        if callbacks is not None:
            self._watch = _Watch(self, run, *callbacks)


class _Watch:
    """Torch calls hooks of ours around each compilation. What it compiled and why is known a moment later.

    They run inside the user's training: an error of ours switches ``source`` off there, and goes no further.
    """

    def __init__(
        self, source: CompileEvents, run: RunContext, add_start: Any, add_end: Any, remove_start: Any, remove_end: Any
    ) -> None:
        self._run = run
        self._begun: tuple[int, int] | None = None
        self._ended: list[tuple[int, int, int, str]] = []
        begin, end = partial(run.call_in_hook, source, self._begin), partial(run.call_in_hook, source, self._end)
        self._removals = partial(remove_start, begin), partial(remove_end, end)
        add_start(begin)
        add_end(end)

    def remove(self) -> None:
        for remove in self._removals:
            with contextlib.suppress(ValueError):  # torch._dynamo.reset() has removed it
                remove()

    def _begin(self, *_: Any) -> None:
        self.note_ended()
        self._begun = self._run.clock.monotonic_ns(), threading.get_native_id()

    def _end(self, *args: Any) -> None:
        begun, self._begun = self._begun, None
        if begun is not None and self._run.is_recording:
            compile_id = str(getattr(args[0], "compile_id", "")) if args else ""
            self._ended.append((*begun, self._run.clock.monotonic_ns(), compile_id))

    def note_ended(self) -> None:
        """Notes the compilations that are over. Torch has completed their metrics by now."""
        ended, self._ended = self._ended, []
        for begin_ns, tid, end_ns, compile_id in ended:
            name, args = _described(_metrics_of(compile_id))
            self._run.add_event(SourceEvent(name, "compile", begin_ns, end_ns, tid, args))


def _metrics_of(compile_id: str) -> Mapping[str, Any]:
    """Torch's metrics of one compilation; nothing if it has none."""
    find = compilation_metrics.find()
    if find is None or not compile_id:
        return {}
    for metrics in map(vars, reversed(find())):
        for field in of_metrics:
            field.check(metrics)
        if compilation_id.get(metrics) == compile_id:
            return metrics
    return {}


def _described(metrics: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name and the args of a compilation, from torch's metrics."""
    function, file, reason = (field.get(metrics) for field in (function_name, function_file, recompile_reason))
    args = {"function": function} if function else {}
    if file:
        args["line"] = f"{source_name(file)}:{function_line.get(metrics) or 0}"
    if reason:
        args["guard"] = guard_in_words(str(reason))
    return f"compile/{function or 'graph'}", args


def guard_in_words(reason: str) -> str:
    """What torch says of a failed guard, in short: "`x.size()[0]` was 32, is 17"."""
    first_line = _OF_CACHE.sub("", reason).split("\n", 1)[0]
    condition = first_line.split("  #", 1)[0].strip()
    if match := _SIZE.match(condition):
        name, what, index, before, now = match.groups()
        return f"`{name}.{what}()[{index}]` was {before}, is {now}"
    if match := _OTHER.match(condition):
        name, what, before, now = match.groups()
        return f"{what} of `{name}` was {before}, is {now}"
    if condition != first_line.strip():
        return f"`{condition[:_LONGEST]}` does not hold any more"
    return shorten_paths(condition)[:_LONGEST]
