"""Redaction of what a run writes: cycles for handlers, files that users contribute, and the run's own names."""

from collections import Counter
from dataclasses import replace
from itertools import compress
from pathlib import Path

import msgspec

from kinetoscope.core.job.ranks import Attempt
from kinetoscope.core.paths.atomic_file import atomic_file
from kinetoscope.errors import TraceFileError
from kinetoscope.formats.chrome import read_chrome
from kinetoscope.formats.trace_redaction import Replace, TraceRedactor, redact_categories, unused_name, write_redacted
from kinetoscope.pulse.pulse_recorder import TrainingFacts
from kinetoscope.pulse.stalls import GroupState
from kinetoscope.recording.markers.recorder_types import SpanName
from kinetoscope.recording.window.cycle import Contributions, Cycle
from kinetoscope.recording.window.source_events import SourceEvent
from kinetoscope.spool.owner_lock import anonymous_host_id
from kinetoscope.spool.record import Kind, record_columns


def redact_cycle(cycle: Cycle, redact: Replace) -> None:
    """Redact all strings of a cycle, in place: names, categories, threads, the run's name and the metadata.

    Raises the errors of reading its records; then nothing has changed.
    """
    threads = [replace(thread, name=redact(thread.name)) for thread in cycle.threads]
    names = [redact_name(name, redact) for name in list(cycle.names)]
    names = _rename_equal_series(names, cycle)
    lasting = [replace(span, name=redact_name(span.name, redact)) for span in cycle.lasting]
    redactor = TraceRedactor(redact)
    events = [_redact_event(event, redactor, redact) for event in cycle.events]
    tracks = {tid: redact(name) for tid, name in cycle.tracks.items()}
    metadata = redactor.header(cycle.metadata)
    cycle.run_name, cycle.threads, cycle.names = redact(cycle.run_name), threads, names
    cycle.lasting, cycle.metadata = lasting, metadata
    cycle.events, cycle.tracks = events, tracks
    if cycle.slow_step is not None and cycle.slow_step.line is not None:
        cycle.slow_step = msgspec.structs.replace(cycle.slow_step, line=redact(cycle.slow_step.line))


def _redact_event(event: SourceEvent, redactor: TraceRedactor, redact: Replace) -> SourceEvent:
    category = redact_categories(event.category, redact)
    return event._replace(name=redact(event.name), category=category, args=redactor.header(event.args))


def redact_name(name: SpanName, redact: Replace) -> SpanName:
    """Return the name and the categories of a marker, redacted."""
    categories = tuple(redact_categories(category, redact) for category in name.categories)
    return SpanName(redact(name.name), categories, name.args)


def redact_attempt(attempt: Attempt, redact: Replace | None) -> Attempt:
    """Return the attempt with its id, which the launcher may have built from an address, and its host redacted."""
    if redact is None:
        return attempt
    run_id = attempt.run_id if attempt.run_id == attempt.start else redact(attempt.run_id)
    host = attempt.host if redact(attempt.host) == attempt.host else anonymous_host_id()
    return replace(attempt, run_id=run_id, host=host)


def redact_training(training: TrainingFacts | None, redact: Replace | None) -> TrainingFacts | None:
    """Return the facts of a training run with the class of its optimizer redacted."""
    if training is None or redact is None:
        return training
    return msgspec.structs.replace(training, optimizer=redact(training.optimizer))


def redact_group(group: GroupState, redact: Replace) -> GroupState:
    """Return the state of a process group with its name and its collective redacted."""
    return msgspec.structs.replace(group, name=redact(group.name), collective=redact(group.collective))


def add_redacted(file: Path, contributions: Contributions, redact: Replace) -> None:
    """Contribute a redacted copy of ``file``, in its folder, and delete ``file``. Raises OSError if that fails."""
    copy = file.with_name(f"redacted-{len(contributions.files)}.json")
    try:
        trace = read_chrome(file)
    except TraceFileError as error:
        contributions.damages.append(redact(f"left out {file.name}: {error}"))
    else:
        with atomic_file(copy) as stream:
            write_redacted(trace, stream, TraceRedactor(redact))
        contributions.damages.extend(trace.notes)
        contributions.add_temporary(copy)
    file.unlink()


def _rename_equal_series(names: list[SpanName], cycle: Cycle) -> list[SpanName]:
    """Return the names without equal series of counters: one would hide the other."""
    if max(Counter(name.name for name in names).values(), default=1) == 1:
        return names
    series = sorted(
        {number for thread in cycle.threads for part in thread.parts for number in _find_series(part.read())}
    )
    used: dict[str, None] = {}
    for number in series:
        name = unused_name(names[number].name, used)
        used[name] = None
        names[number] = replace(names[number], name=name)
    return names


def _find_series(packed: bytes | memoryview) -> set[int]:
    columns = record_columns(packed)
    return set(compress(columns.series, map(Kind.COUNTER.__eq__, columns.kind)))
