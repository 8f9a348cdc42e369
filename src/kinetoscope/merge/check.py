"""merge: what is wrong with traces. Files flow in; findings, each a whole sentence, flow out."""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from kinetoscope.errors import TraceFileError
from kinetoscope.merge.input_file import InputFile
from kinetoscope.merge.merge_traces import ByteProgress, make_rewriter

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


def check_trace(path: str | os.PathLike[str], on_progress: Callable[[int, int], None] | None = None) -> FileCheck:
    """What is wrong with one file: its syntax, the nesting of its spans, its clock, its flows and pairs.

    A file that cannot be read is a finding, not an error. ``on_progress`` is called with the bytes done and the bytes
    in all.
    """
    name = os.fspath(path)
    progress = ByteProgress([name], on_progress, num_passes=1)
    try:
        return findings_of(make_rewriter().survey(name, 0, None, progress.advance, checks=True))
    except TraceFileError as error:
        return unreadable(name, error)


def unreadable(path: str, error: TraceFileError) -> FileCheck:
    """What there is to say of a file of which nothing can be read."""
    return FileCheck(path, findings=[Finding("syntax", str(error))])


def findings_of(file: InputFile) -> FileCheck:
    """What is wrong with a file that was surveyed with ``checks``."""
    info = file.header.get("distributedInfo")
    world_size = info.get("world_size") if isinstance(info, dict) else None
    check = FileCheck(file.path, file.rank, world_size if isinstance(world_size, int) else None, file.counts["events"])
    check.findings += [Finding("syntax", repair) for repair in file.repairs]
    if not file.has_clock:
        check.findings.append(
            Finding("clock", "It has no clock: its times mean nothing beside other files'. Merge it with --align-on.")
        )
    elif file.earliest_ns is not None and file.earliest_ns < _SMALLEST_UNIX_NS:
        check.findings.append(Finding("clock", "Its earliest event is before 2001: its clock was wrong."))
    check.findings += _counted(file.counts)
    return check


def compare_checks(checks: Sequence[FileCheck]) -> None:
    """Adds to the first check what is wrong with all files together: ranks missing, or from runs of two sizes."""
    if checks:
        checks[0].findings += _missing_ranks(checks)


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


def _missing_ranks(checks: Sequence[FileCheck]) -> Iterable[Finding]:
    sizes = {check.world_size for check in checks if check.world_size}
    if len(sizes) > 1:
        yield Finding("ranks", f"The files are of runs of different sizes: {', '.join(map(str, sorted(sizes)))} ranks.")
    elif sizes and len(checks) > 1:
        missing = sorted(set(range(min(sizes.pop(), 1 << 20))) - {check.rank for check in checks})
        if missing:
            named = ", ".join(map(str, missing[:_MOST_RANKS_NAMED]))
            more = ", ..." if len(missing) > _MOST_RANKS_NAMED else ""
            yield Finding("ranks", f"{len(missing)} ranks have no file here: {named}{more}.")
