"""Finds what is wrong with traces, and writes a repaired copy of one.

A repair reads a file twice and writes it as a merge of one file in which everything stays where it is. So memory stays
flat; in pure Python it holds the file's events.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kinetoscope.clock.clock import choose_base_ns
from kinetoscope.errors import SettingsError, TraceFileError
from kinetoscope.merge.input_file import InputFile, Plan, Questions, nesting_notes
from kinetoscope.merge.merge_traces import ByteProgress, make_rewriter
from kinetoscope.merge.trace_output import is_perfetto, trace_output

_MOST_RANKS_NAMED = 8
_SMALLEST_UNIX_NS = 10**18  # September 2001
_SECOND_NS = 10**9
_REPAIRED_KINDS = ("syntax", "events", "nesting", "tracks", "times", "flows")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong, as a sentence. ``kind`` is syntax, events, nesting, tracks, times, clock, flows,
    pairs or ranks."""

    kind: str
    text: str


@dataclass(slots=True)
class FileCheck:
    """What is wrong with one file; ``ranks`` are those in it, none where it could not be read."""

    path: str
    ranks: list[int] = field(default_factory=list)
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
        return findings_of(make_rewriter(Questions(checks=True)).survey(name, 0, progress.advance))
    except TraceFileError as error:
        return unreadable(name, error)


def unreadable(path: str, error: TraceFileError) -> FileCheck:
    """What there is to say of a file of which nothing can be read."""
    return FileCheck(path, findings=[Finding("syntax", str(error))])


def findings_of(file: InputFile) -> FileCheck:
    """What is wrong with a file that was surveyed with ``checks``."""
    info = file.header.get("distributedInfo")
    world_size = info.get("world_size") if isinstance(info, dict) else None
    check = FileCheck(file.path, file.ranks, world_size if isinstance(world_size, int) else None, file.counts["events"])
    check.findings += [Finding("syntax", repair) for repair in file.repairs]
    if not file.has_clock:
        check.findings.append(
            Finding("clock", "It has no clock: its times mean nothing beside other files'. Merge it with --align-on.")
        )
    elif file.earliest_ns is not None and file.earliest_ns < _SMALLEST_UNIX_NS:
        check.findings.append(Finding("clock", "Its earliest event is before 2001: its clock was wrong."))
    check.findings += _counted(file.counts)
    return check


def compare_checks(checks: Sequence[FileCheck]) -> list[Finding]:
    """What is wrong with all files together: ranks are missing, or come from runs of two sizes."""
    sizes = {check.world_size for check in checks if check.world_size}
    if len(sizes) > 1:
        listed = ", ".join(map(str, sorted(sizes)))
        return [Finding("ranks", f"The files are of runs of different sizes: {listed} ranks.")]
    if not sizes or len(checks) < 2:
        return []
    there = {rank for check in checks for rank in check.ranks}
    missing = sorted(set(range(min(sizes.pop(), 1 << 20))) - there)
    if not missing:
        return []
    named = ", ".join(map(str, missing[:_MOST_RANKS_NAMED]))
    more = f" and {len(missing) - _MOST_RANKS_NAMED:,} more" if len(missing) > _MOST_RANKS_NAMED else ""
    return [Finding("ranks", f"Ranks without a file here: {named}{more}.")]


def _counted(counts: dict[str, int]) -> Iterable[Finding]:
    sentences = {
        "clipped": ("nesting", "Spans that reach a little out of the one around them, which viewers may drop: {}."),
        "moved": ("nesting", "Spans that overlap others of their track, which viewers drop: {}."),
        "hidden": ("events", "Events that viewers drop, as a phase, a time or an id is missing: {}."),
        "mended": ("events", "Events that viewers drop, as a field is missing or of a kind they do not take: {}."),
        "misread": (
            "tracks",
            "Threads that viewers mistake for others, as their number is text, negative or too large: {}.",
        ),
        "negative": ("times", "Events before the time 0, which viewers drop: {}."),
        "rounded": ("times", "Spans whose times viewers round, to drop what overlaps then: {}."),
        "hidden_flows": ("flows", "Flows that viewers drop, as no span of their track is there: {}."),
        "repeated_flows": ("flows", "Flows that begin under the id of another, which viewers draw wrongly: {}."),
        "lone_begins": ("pairs", "B events without an E, which viewers draw to the end: {}."),
        "lone_ends": ("pairs", "E events without a B, which viewers drop: {}."),
    }
    for name, (kind, sentence) in sentences.items():
        if counts.get(name):
            yield Finding(kind, sentence.format(f"{counts[name]:,}"))


@dataclass(frozen=True, slots=True)
class RepairedTrace:
    """What was wrong with a trace, and what was done about it, in sentences."""

    output: Path
    check: FileCheck
    done: list[str]

    @property
    def left(self) -> list[Finding]:
        """What a repair cannot mend: it would have to guess."""
        return [finding for finding in self.check.findings if finding.kind not in _REPAIRED_KINDS]


def repair_trace(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    on_progress: Callable[[int, int], None] | None = None,
) -> RepairedTrace:
    """Writes what can be read of a trace to ``output``, as valid JSON whose spans nest; says what was done.

    Pids, tids, ids, times and fields, those beside the events too, stay as they are; a span that overlaps others moves
    to a track of its own. ``output`` is packed if its name says so, appears when it is complete, and may be ``path``;
    ``-`` is the standard output. ``on_progress`` is called with the bytes done and the bytes in all.
    Raises `TraceFileError` if nothing can be read, `SettingsError` for a name that is not JSON's.
    """
    target = Path(output)
    if is_perfetto(target):
        raise SettingsError(f"Cannot repair into {target}: a repaired trace is JSON. Convert that one afterwards.")
    progress = ByteProgress([os.fspath(path)], on_progress)
    rewriter = make_rewriter(Questions(checks=True))
    file = rewriter.survey(os.fspath(path), 0, progress.advance)
    plan, base_ns = Plan(keeps_places=True), _base_ns(file)
    file.shift_ns = _shift_ns(file, base_ns)
    with trace_output(target, base_ns=base_ns, header=_kept(file.header)) as writer:
        rewriter.rewrite(file, plan, writer, progress.advance)
    return RepairedTrace(target, findings_of(file), _done(file, plan))


def _base_ns(file: InputFile) -> int:
    return max(0, choose_base_ns(file.earliest_ns or 0, file.base_ns)) if file.has_clock else 0


def _shift_ns(file: InputFile, base_ns: int) -> int:
    """How far all times must move so that viewers take them, where what they count from is not enough: full seconds."""
    earliest_ns = file.earliest_ns or 0
    is_rounded = file.counts["rounded"] > 0 and not file.has_clock
    return base_ns - earliest_ns // _SECOND_NS * _SECOND_NS if earliest_ns < base_ns or is_rounded else 0


def _kept(header: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in header.items() if key != "traceEvents"}


def _done(file: InputFile, plan: Plan) -> list[str]:
    counts = file.counts
    num_hidden, shift_s = counts["hidden"] + counts["hidden_flows"], file.shift_ns / 1e9
    sentences = [
        (num_hidden, f"Events left out, as no viewer can show them: {num_hidden:,}."),
        (counts["mended"], f"Events made such as viewers take them: {counts['mended']:,}."),
        (counts["misread"], f"Threads whose number is written as viewers read it: {counts['misread']:,}."),
        (counts["repeated_flows"], f"Flows that now have an id of their own: {counts['repeated_flows']:,}."),
        (file.shift_ns, f"All times moved by {shift_s:+,.0f} s, to where viewers take them."),
    ]
    return [*file.repairs, *nesting_notes(plan), *(sentence for count, sentence in sentences if count)]
