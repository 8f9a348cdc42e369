"""merge: what is wrong with traces. Files flow in; findings, each a whole sentence, and repaired files flow out."""

import os
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kinetoscope.errors import TraceFileError
from kinetoscope.formats.chrome import ChromeWriter, choose_base_ns, read_chrome
from kinetoscope.formats.compression import compressed_by_name
from kinetoscope.formats.nesting import nest
from kinetoscope.merge.merge_traces import survey_trace
from kinetoscope.writing.atomic_file import atomic_file

_MOST_RANKS_NAMED = 8
_SMALLEST_UNIX_NS = 10**18  # September 2001


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, as a sentence. ``kind`` is syntax, nesting, clock, flows, pairs or ranks."""

    kind: str
    text: str


@dataclass(slots=True)
class FileCheck:
    """What is wrong with one file; ``rank`` is None where it could not be read."""

    path: str
    rank: int | None = None
    world_size: int | None = None
    num_events: int = 0
    findings: list[Finding] = field(default_factory=list)


def check_traces(paths: Sequence[str | os.PathLike[str]], executor: Executor | None = None) -> list[FileCheck]:
    """What is wrong with each file, and with all of them together: ranks that are missing or come from two worlds.

    ``executor`` takes several files at a time. A file that cannot be read is a finding, not an error.
    """
    names = [os.fspath(path) for path in paths]
    checks = list(executor.map(check_trace, names) if executor is not None else map(check_trace, names))
    if checks:
        checks[0].findings += _missing_ranks(checks)
    return checks


def check_trace(path: str | os.PathLike[str]) -> FileCheck:
    """What is wrong with one file: its syntax, the nesting of its spans, its clock, its flows and pairs."""
    name = os.fspath(path)
    try:
        file = survey_trace(name, checks=True)
    except TraceFileError as error:
        return FileCheck(name, findings=[Finding("syntax", str(error))])
    info = file.header.get("distributedInfo")
    world_size = info.get("world_size") if isinstance(info, dict) else None
    check = FileCheck(name, file.rank, world_size if isinstance(world_size, int) else None, file.counts["events"])
    check.findings += [Finding("syntax", repair) for repair in file.repairs]
    if not file.has_clock:
        check.findings.append(
            Finding("clock", "It has no clock: its times mean nothing beside other files'. Merge it with --align-on.")
        )
    elif file.earliest_ns is not None and file.earliest_ns < _SMALLEST_UNIX_NS:
        check.findings.append(Finding("clock", "Its earliest event is before 2001: its clock was wrong."))
    check.findings += _counted(file.counts)
    return check


def _counted(counts: dict[str, int]) -> Iterable[Finding]:
    sentences = {
        "clipped": ("nesting", "{} spans reach a little out of the span around them: viewers may drop them."),
        "moved": ("nesting", "{} spans overlap others of their track: viewers drop them."),
        "repeated_flows": ("flows", "{} flows begin under an id that another flow has: viewers draw them wrongly."),
        "lone_begins": ("pairs", "{} B events have no E: viewers draw these spans to the end."),
        "lone_ends": ("pairs", "{} E events have no B: viewers drop them."),
    }
    for name, (kind, sentence) in sentences.items():
        if counts.get(name):
            yield Finding(kind, sentence.format(f"{counts[name]:,}"))


def _missing_ranks(checks: list[FileCheck]) -> Iterable[Finding]:
    sizes = {check.world_size for check in checks if check.world_size}
    if len(sizes) > 1:
        yield Finding("ranks", f"The files are of runs of different sizes: {', '.join(map(str, sorted(sizes)))} ranks.")
    elif sizes and len(checks) > 1:
        missing = sorted(set(range(min(sizes.pop(), 1 << 20))) - {check.rank for check in checks})
        if missing:
            named = ", ".join(map(str, missing[:_MOST_RANKS_NAMED]))
            more = ", ..." if len(missing) > _MOST_RANKS_NAMED else ""
            yield Finding("ranks", f"{len(missing)} ranks have no file here: {named}{more}.")


def repair_trace(path: str | os.PathLike[str], output: str | os.PathLike[str]) -> list[str]:
    """Writes what can be read of a trace to ``output``, as valid JSON whose spans nest; returns what was done.

    Pids, tids and all fields stay as they are. The file's events are held in memory. Raises `TraceFileError` if
    nothing can be read.
    """
    trace = read_chrome(path)
    counts = nest(trace.events)
    times = [event["ts"] for event in trace.events if "ts" in event and event.get("ph") != "M"]
    base_ns = choose_base_ns(min(times, default=0)) if trace.has_clock else 0
    target = Path(output)
    with atomic_file(target) as stream, compressed_by_name(stream, target) as packed:
        with ChromeWriter(packed, base_ns=base_ns, header=_kept(trace.header)) as writer:
            writer.write(trace.events)
    done = list(trace.repairs)
    if counts.clipped or counts.moved:
        done.append(f"{counts.clipped:,} spans were cut and {counts.moved:,} moved, so that all nest.")
    return done


def _kept(header: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in header.items() if key != "traceEvents"}
