"""Records of finished runs, one per line of a file, and the table that is made from them."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Literal

import msgspec

from kinetoscope.formats.experiments import MIN_CHANGE

Kind = Literal["edit", "planted", "same", "busy"]
"""``edit``: the program and its edit, without `kinetoscope try`; ``planted``: `try` with the variant that replaces the
edit; ``same``: six variants without a change; ``busy``: as planted, while other processes keep the CPUs busy."""

POINTS = 0.03
"""`try` and the edit should differ by at most this share of the step."""

_KINDS: dict[Kind, str] = {
    "planted": "planted programs",
    "same": "six rows without a change",
    "busy": "beside two busy processes",
}


class TrialRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A finished run. ``load`` is the machine's load average per core before it.

    ``boot`` is the start of the machine: after another one, the same description may be that of a faster machine.
    ``change`` and ``interval`` are relative to the unmodified step; ``verdicts`` has one per row. ``is_complete`` is
    false if the time was over before each row had its rounds.
    """

    kind: Kind
    program: str
    number: int
    date: str
    machine: str
    boot: str
    load: float
    duration_s: float
    change: float | None = None
    interval: tuple[float, float] | None = None
    verdicts: list[str] = []
    is_complete: bool = True

    @property
    def key(self) -> tuple[str, ...]:
        """Key of the run, by which a second start of the benchmark skips it; edits are measured after each boot."""
        return build_key(self.kind, self.program, self.number, self.boot)


def build_key(kind: Kind, program: str, number: int, boot: str) -> tuple[str, ...]:
    """Return the key of a run, or of one to do."""
    return kind, program, str(number), boot if kind == "edit" else ""


def read_records(path: Path) -> list[TrialRecord]:
    """Return the finished runs in a file, if there is one. A last line that was not completed is skipped."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[:-1]
    return [msgspec.json.decode(line, type=TrialRecord) for line in lines]


def append_record(path: Path, record: TrialRecord) -> None:
    """Write a finished run at once; a line that was not completed is overwritten."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab+") as stream:
        stream.seek(0)
        stream.truncate(stream.read().rfind(b"\n") + 1)
        stream.write(msgspec.json.encode(record) + b"\n")


class Edits:
    """Changes of programs' steps by their edits, which are compared with runs of the same boot of the machine."""

    def __init__(self, records: Sequence[TrialRecord]) -> None:
        self._logs: dict[tuple[str, str], list[float]] = {}
        for record in records:
            if record.kind == "edit" and record.change is not None:
                self._logs.setdefault((record.boot, record.program), []).append(math.log1p(record.change))

    def change_of(self, record: TrialRecord) -> float | None:
        """Return the change that ``record`` should find: the mean of all runs of the edit; None without one."""
        logs = self._logs.get((record.boot, record.program))
        return None if record.kind == "same" or logs is None else math.expm1(fmean(logs))


def is_right(record: TrialRecord, edits: Edits) -> bool | None:
    """Return whether the verdict of a run is that of the edit; None without an edit, or without all of its rounds."""
    if is_wrong(record, edits):
        return False
    if record.kind == "same":
        return record.is_complete or None
    edit = edits.change_of(record)
    return None if edit is None or not record.is_complete else record.verdicts == [_expect_verdict(edit)]


def is_wrong(record: TrialRecord, edits: Edits) -> bool:
    """Return whether a run reports a change that the edit does not have; "inconclusive" is never wrong."""
    reported, edit = {"faster", "slower", "same"} & set(record.verdicts), edits.change_of(record)
    if record.kind == "same":
        return bool(reported - {"same"})
    return edit is not None and bool(reported - {_expect_verdict(edit)})


def _expect_verdict(edit: float) -> str:
    return "same" if abs(edit) < MIN_CHANGE else "slower" if edit > 0 else "faster"


def render_table(records: Sequence[TrialRecord], num_planned: dict[Kind, int]) -> str:
    """Return the page: totals, a row per program, and each run."""
    edits = Edits(records)
    parts = [
        "# `kinetoscope try` compared with edits of planted programs\n",
        "Made by `python -m benchmarks.trials` from `trials.jsonl`, which has a line per finished run. *Edit* is the\n"
        "change of the step by editing the program, *try* that by the variant, with its 95 % interval. *Load* is the\n"
        "machine's load average per core before the run, to which the run before contributes. Edits are measured\n"
        "again after each boot of the machine, and compared with runs of the same boot. A run whose time was over\n"
        "before three rounds is listed, and repeated, if need be with more time (--max-seconds).\n",
        *_render_totals(records, edits, num_planned),
        *_render_programs(records, edits),
        *_render_runs(records, edits),
    ]
    return "\n".join(parts)


def _render_totals(records: Sequence[TrialRecord], edits: Edits, num_planned: dict[Kind, int]) -> list[str]:
    lines = [
        "| runs | planned | complete | time over | right verdict | wrong verdict |",
        "|---|---|---|---|---|---|",
    ]
    for kind, label in _KINDS.items():
        of_kind = [record for record in records if record.kind == kind]
        num_complete = sum(record.is_complete for record in of_kind)
        num_right = sum(is_right(record, edits) is True for record in of_kind)
        num_wrong = sum(is_wrong(record, edits) for record in of_kind)
        num_over = len(of_kind) - num_complete
        cells = [num_planned.get(kind, 0), num_complete, num_over, num_right, num_wrong]
        lines.append(f"| {label} | {' | '.join(map(str, cells))} |")
    return ["\n".join(lines) + "\n"]


def _render_programs(records: Sequence[TrialRecord], edits: Edits) -> list[str]:
    lines = [
        "| planted program | runs | edit | try, mean | within 3 points | right verdict |",
        "|---|---|---|---|---|---|",
    ]
    for program in dict.fromkeys(record.program for record in records if record.kind == "planted"):
        of_program = [
            record for record in records if (record.kind, record.program) == ("planted", program) and record.is_complete
        ]
        pairs = [(edits.change_of(record), record.change) for record in of_program]
        known = [(edit, change) for edit, change in pairs if edit is not None and change is not None]
        edit, mean = (_percent(fmean(changes)) for changes in zip(*known, strict=True)) if known else ("", "")
        num_near = sum(abs(change - edit) <= POINTS for edit, change in known)
        num_right = sum(is_right(record, edits) is True for record in of_program)
        lines.append(f"| {program} | {len(of_program)} | {edit} | {mean} | {num_near} | {num_right} |")
    return ["\n".join(lines) + "\n"]


def _render_runs(records: Sequence[TrialRecord], edits: Edits) -> list[str]:
    lines = [
        "| date | machine | kind | program | edit | try | interval | verdict | right | load | s |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for record in records:
        right = {True: "yes", False: "no", None: ""}[is_right(record, edits) if record.kind != "edit" else None]
        edit = record.change if record.kind == "edit" else edits.change_of(record)
        change = None if record.kind == "edit" else record.change
        interval = (
            "" if record.interval is None else f"{_percent(record.interval[0])} to {_percent(record.interval[1])}"
        )
        cells = [record.date, record.machine, record.kind, record.program, _percent(edit), _percent(change), interval]
        cells += [", ".join(record.verdicts), right, f"{record.load:.1f}", f"{record.duration_s:.0f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return ["\n".join(lines) + "\n"]


def _percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:+.1f} %"
