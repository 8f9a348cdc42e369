"""Faults of traces, and repaired copies.

A repair reads a file twice and writes it as a merge of one file in which all events keep their tracks. So memory stays
flat.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kinetoscope.core.clock.clock import choose_base_ns
from kinetoscope.core.text.wording import find_gaps, format_ranges
from kinetoscope.errors import SettingsError, TraceFileError
from kinetoscope.formats.chrome_event import UNIX_NS
from kinetoscope.formats.health import describe_losses
from kinetoscope.formats.viewers import MAX_TIME_NS
from kinetoscope.merge.input_file import InputFile, Plan, SurveyOptions, describe_nesting, kinetoscope_header
from kinetoscope.merge.merge_traces import ByteProgress
from kinetoscope.merge.native_rewrite import NativeRewriter
from kinetoscope.merge.trace_output import is_perfetto, trace_output

_SECOND_NS = 10**9
_REPAIRED_KINDS = ("syntax", "events", "nesting", "tracks", "times", "flows")


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault, as a sentence.

    ``kind`` is syntax, events, nesting, tracks, times, clock, flows, pairs, ranks, mixed ranks or losses.
    """

    kind: str
    text: str


@dataclass(slots=True)
class FileCheck:
    """The faults of one file; ``ranks`` are the ranks in it, empty if it could not be read."""

    path: str
    ranks: list[int] = field(default_factory=list)
    world_size: int | None = None
    num_events: int = 0
    findings: list[Fault] = field(default_factory=list)


def check_trace(path: str | os.PathLike[str], on_progress: Callable[[int, int], None] | None = None) -> FileCheck:
    """Check one file: its syntax, the nesting of its spans, its clock, its flows and pairs.

    A file that cannot be read has a fault of kind ``syntax``; no error is raised. ``on_progress`` is called with the
    bytes done and the total.
    """
    name = os.fspath(path)
    progress = ByteProgress([name], on_progress, num_passes=1)
    try:
        return build_file_check(NativeRewriter(SurveyOptions(checks=True)).survey(name, 0, progress.advance))
    except TraceFileError as error:
        return unreadable(name, error)


def unreadable(path: str, error: TraceFileError) -> FileCheck:
    """Return the result for a file that cannot be read."""
    return FileCheck(path, findings=[Fault("syntax", str(error))])


def build_file_check(file: InputFile) -> FileCheck:
    """Build the check of a file that was surveyed with ``checks``."""
    info = file.header.get("distributedInfo")
    world_size = info.get("world_size") if isinstance(info, dict) else None
    check = FileCheck(file.path, file.ranks, world_size if isinstance(world_size, int) else None, file.counts["events"])
    check.findings += [Fault("syntax", repair) for repair in (*file.repairs, *file.health.documents)]
    check.findings += [Fault("events", sentence) for sentence in file.health.numbers]
    check.findings += [Fault("times", sentence) for sentence in file.health.left_out]
    check.findings += [Fault("mixed ranks", sentence) for sentence in file.health.mixed_ranks]
    if not file.has_clock:
        check.findings.append(
            Fault("clock", "It has no clock, so its times cannot be compared with others. Merge it with --align-on.")
        )
    elif file.earliest_ns is not None and file.earliest_ns < UNIX_NS:
        check.findings.append(Fault("clock", "Its earliest event is before 2001: its clock was wrong."))
    check.findings += [Fault("losses", sentence) for sentence in describe_losses(kinetoscope_header(file.header))]
    check.findings += _counted(file.counts)
    return check


def compare_checks(checks: Sequence[FileCheck]) -> list[Fault]:
    """Return the faults of the files together: missing ranks, or ranks of runs of different sizes."""
    sizes = {check.world_size for check in checks if check.world_size}
    if len(sizes) > 1:
        listed = ", ".join(map(str, sorted(sizes)))
        return [Fault("ranks", f"The files are from runs of different sizes: {listed} ranks.")]
    if not sizes or len(checks) < 2:
        return []
    present = {rank for check in checks for rank in check.ranks}
    missing = find_gaps(present, sizes.pop())
    return [Fault("ranks", f"Ranks without a file here: {format_ranges(missing)}.")] if missing else []


def _counted(counts: dict[str, int]) -> Iterable[Fault]:
    sentences = {
        "clipped": ("nesting", "Spans that end a little after the span around them, which viewers may drop: {}."),
        "moved": ("nesting", "Spans that overlap others on their track, which viewers drop: {}."),
        "hidden": ("events", "Events that viewers drop because a phase, a time or an id is missing: {}."),
        "repaired": ("events", "Events that viewers drop because a field is missing or has an unknown type: {}."),
        "misread": (
            "tracks",
            "Threads that viewers mistake for others because their number is text, negative or too large: {}.",
        ),
        "negative": ("times", "Events before time 0, which viewers drop: {}."),
        "rounded": ("times", "Spans whose times viewers round, and which they may then drop as overlapping: {}."),
        "hidden_flows": ("flows", "Flows that viewers drop because there is no span on their track at that time: {}."),
        "repeated_flows": ("flows", "Flows that begin with the id of another flow, which viewers draw wrongly: {}."),
        "lone_begins": ("pairs", "B events without an E, which viewers draw to the end: {}."),
        "lone_ends": ("pairs", "E events without a B, which viewers drop: {}."),
    }
    for name, (kind, sentence) in sentences.items():
        if counts.get(name):
            yield Fault(kind, sentence.format(f"{counts[name]:,}"))


@dataclass(frozen=True, slots=True)
class RepairedTrace:
    """The faults of a trace, and ``repairs`` in sentences."""

    output: Path
    check: FileCheck
    repairs: list[str]

    @property
    def unrepaired(self) -> list[Fault]:
        """The faults that cannot be repaired without guessing."""
        return [fault for fault in self.check.findings if fault.kind not in _REPAIRED_KINDS]


def repair_trace(
    path: str | os.PathLike[str],
    output: str | os.PathLike[str],
    on_progress: Callable[[int, int], None] | None = None,
) -> RepairedTrace:
    """Write the readable part of a trace to ``output``, as valid JSON whose spans nest.

    Pids, tids, ids, times and fields, also those beside the events, are kept. A span that overlaps others moves to a
    new track. ``output`` is compressed if its name ends in ``.gz`` or ``.zst``, appears when it is complete, and may be
    ``path``; ``-`` is the standard output. ``on_progress`` is called with the bytes done and the total.

    Raises:
        TraceFileError: nothing can be read.
        SettingsError: the name is one of another format than JSON.
    """
    target = Path(output)
    if is_perfetto(target):
        raise SettingsError(
            f"Cannot repair into {target}: a repaired trace is JSON. Repair it as .json, then convert that."
        )
    progress = ByteProgress([os.fspath(path)], on_progress)
    rewriter = NativeRewriter(SurveyOptions(checks=True))
    file = rewriter.survey(os.fspath(path), 0, progress.advance)
    plan, base_ns = Plan(keeps_tracks=True), _base_ns(file)
    file.shift_ns = _shift_ns(file, base_ns)
    header = {key: value for key, value in file.header.items() if key != "traceEvents"}
    with trace_output(target, base_ns=base_ns, header=header) as writer:
        rewriter.rewrite(file, plan, writer, progress.advance)
    return RepairedTrace(target, build_file_check(file), _describe_repairs(file, plan))


def _base_ns(file: InputFile) -> int:
    """Return the zero of the repaired times: a usual base, unless only the file's own keeps them exact."""
    if not file.has_clock:
        return 0
    base_ns = max(0, choose_base_ns(file.earliest_ns or 0, file.base_ns))
    is_exact = (file.latest_ns or 0) - base_ns < MAX_TIME_NS
    return base_ns if is_exact or file.counts["rounded"] else file.base_ns


def _shift_ns(file: InputFile, base_ns: int) -> int:
    """Return the shift of all times, in whole seconds, that viewers need; 0 if choosing the base is enough."""
    earliest_ns = file.earliest_ns or 0
    is_rounded = file.counts["rounded"] > 0 and not file.has_clock
    return base_ns - earliest_ns // _SECOND_NS * _SECOND_NS if earliest_ns < base_ns or is_rounded else 0


def _describe_repairs(file: InputFile, plan: Plan) -> list[str]:
    counts = file.counts
    num_hidden, shift_s = counts["hidden"] + counts["hidden_flows"], file.shift_ns / 1e9
    sentences = [
        (num_hidden, f"Events left out because no viewer can show them: {num_hidden:,}."),
        (counts["repaired"], f"Events changed so that viewers take them: {counts['repaired']:,}."),
        (counts["misread"], f"Threads that got a number which viewers read correctly: {counts['misread']:,}."),
        (counts["repeated_flows"], f"Flows that got an id of their own: {counts['repeated_flows']:,}."),
        (file.shift_ns, f"All times moved by {shift_s:+,.0f} s, so that viewers take them."),
    ]
    health = file.health
    repaired = [*file.repairs, *health.documents, *health.numbers, *health.left_out]
    return [*repaired, *describe_nesting(plan), *(sentence for count, sentence in sentences if count)]
