"""merge: one trace made valid. A file flows in, damaged or not; the same trace flows out, as every viewer takes it.

It is read twice, as for merging, and written as the merge of one file in which everything stays where it is: so memory
stays flat, or, where there is no compiler, holds its events.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kinetoscope.clock.clock import choose_base_ns
from kinetoscope.errors import SettingsError
from kinetoscope.merge.check import FileCheck, Finding, findings_of
from kinetoscope.merge.input_file import InputFile, Plan, Questions, nesting_notes
from kinetoscope.merge.merge_traces import ByteProgress, make_rewriter
from kinetoscope.merge.trace_output import is_perfetto, trace_output

_SECOND_NS = 10**9
_REPAIRED_KINDS = ("syntax", "events", "nesting", "tracks", "times", "flows")


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
