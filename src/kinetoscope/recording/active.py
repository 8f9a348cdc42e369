"""recording: the active profiler of this process, for library code that has no profiler at hand.

This is, with the process itself, the house's one global that says what is going on. `kinetoscope.marker` is called from
libraries that know nothing of the user's Profiler; without a place they both know there would be nothing to record
into. Library markers are therefore moved: they record into the active run's recorder, or into an idle one.
"""

import contextlib
from collections.abc import Iterable
from typing import cast

from kinetoscope.recording import compiler
from kinetoscope.recording.contract import AnyProfiler
from kinetoscope.recording.known_markers import KnownMarkers
from kinetoscope.recording.marker import RECORDING_ACTIONS, Marker, MarkerSettings
from kinetoscope.recording.process import find_parents_run, this_process
from kinetoscope.recording.recorder_choice import ProcessRecorder
from kinetoscope.recording.schedule import ProfilerAction
from kinetoscope.writing.own_thread import after_fork_in_child

_idle = ProcessRecorder()
_home = _current = _idle  # where library markers record while this process has no active profiler, and where now
_known = KnownMarkers()
_nothing = contextlib.nullcontext()


def marker(
    name: str,
    actions: Iterable[ProfilerAction] = RECORDING_ACTIONS,
    record_instant_on_start: bool = False,
    record_instant_on_finish: bool = False,
    categories: Iterable[str] = (),
) -> Marker:
    """The marker of that name for code that has no profiler at hand: it records into the process's active Profiler.

    Takes what `Profiler.marker` takes, and costs as much as a skipped span when no profiler is active. May be called
    each time (``with kinetoscope.marker("parse"):``) or once, ahead of time.
    """
    if compiler.is_compiling():
        return cast("Marker", _nothing)
    if actions is RECORDING_ACTIONS and not (record_instant_on_start or record_instant_on_finish or categories):
        return _known.recent.get(name) or _library_marker(MarkerSettings(name))
    settings = MarkerSettings(name, actions, record_instant_on_start, record_instant_on_finish, categories)
    return _library_marker(settings)


def _library_marker(settings: MarkerSettings) -> Marker:
    compiler.teach_dynamo(Marker)
    key = settings.name if settings == MarkerSettings(settings.name) else settings
    return _known.get(key) or _known.add(key, Marker(_current, settings))


def active_profiler() -> AnyProfiler | None:
    """The profiler of this process that has started and is not closed; None if there is none."""
    return None if this_process.run is None else this_process.run.profiler


def record_into(recorder: ProcessRecorder) -> None:
    """Has library markers record into the ``recorder`` of the run that begins."""
    _move_to(recorder)


def record_no_more_into(recorder: ProcessRecorder) -> None:
    """Makes library markers idle again, unless they record into another recorder since."""
    if _current is recorder:
        _move_to(_home)


def _move_to(recorder: ProcessRecorder) -> None:
    global _current
    _current = recorder
    for marker in _known.living():
        marker.record_into(recorder)


def _join_parents_run() -> None:
    """Records into the run of which this process is a worker, if it is one and has no profiler of its own."""
    run_file = find_parents_run() if _idle.keeps_files and _current is _idle else None
    if run_file is not None:
        _idle.follow(run_file)


def _forget_parent() -> None:
    """A child has no profiler yet. Where its parent has one, that one's recorder goes on recording for the parent."""
    global _home
    _home = _current
    this_process.forget_parents_run()
    _join_parents_run()


_join_parents_run()
after_fork_in_child(_forget_parent)
