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
edit; ``same``: six variants without a change; ``busy``: as planted, beside busy processes."""

POINTS = 0.03
"""`try` and the edit should differ by at most this share of the step."""

_KINDS: dict[Kind, str] = {
    "planted": "planted programs",
    "same": "six rows without a change",
    "busy": "beside two busy processes",
}


class TrialRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A finished run. ``load`` is the machine's load average per core before it.

    ``change`` and ``interval`` are relative to the unmodified step; ``verdicts`` has one per row. ``is_complete`` is
    false if the time was over before each row had its rounds.
    """

    kind: Kind
    program: str
    number: int
    date: str
    machine: str
    load: float
    duration_s: float
    change: float | None = None
    interval: tuple[float, float] | None = None
    verdicts: list[str] = []
    is_complete: bool = True

    @property
    def key(self) -> tuple[str, str, int]:
        """Key of the run, by which a second start of the benchmark skips it."""
        return self.kind, self.program, self.number


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


def find_edits(records: Sequence[TrialRecord]) -> dict[str, float]:
    """Return the change of each program's step by its edit, over all runs."""
    by_program: dict[str, list[float]] = {}
    for record in records:
        if record.kind == "edit" and record.change is not None:
            by_program.setdefault(record.program, []).append(math.log1p(record.change))
    return {program: math.expm1(fmean(logs)) for program, logs in by_program.items()}


def is_right(record: TrialRecord, edits: dict[str, float]) -> bool | None:
    """Return whether the verdict of a run is that of the edit; None without an edit, or without all of its rounds."""
    if record.kind == "same":
        return False if {"faster", "slower"} & set(record.verdicts) else record.is_complete or None
    edit = edits.get(record.program)
    return None if edit is None else record.verdicts == [_expect_verdict(edit)]


def is_wrong(record: TrialRecord, edits: dict[str, float]) -> bool:
    """Return whether a run reports a change that the edit does not have; "inconclusive" is never wrong."""
    known = {"faster", "slower", "same"} & set(record.verdicts)
    return bool(known) and is_right(record, edits) is False


def _expect_verdict(edit: float) -> str:
    return "same" if abs(edit) < MIN_CHANGE else "slower" if edit > 0 else "faster"


def render_table(records: Sequence[TrialRecord], num_planned: dict[Kind, int]) -> str:
    """Return the page: totals, a row per program, and each run."""
    edits = find_edits(records)
    parts = [
        "# `kinetoscope try` beside edits of planted programs\n",
        "Made by `python -m benchmarks.trials` from `trials.jsonl`, which has a line per finished run. *Edit* is the\n"
        "change of the step by editing the program, *try* that by the variant, with its 95 % interval. *Load* is the\n"
        "machine's load average per core before the run, to which the run before contributes.\n",
        *_render_totals(records, edits, num_planned),
        *_render_programs(records, edits),
        *_render_runs(records, edits),
    ]
    return "\n".join(parts)


def _render_totals(records: Sequence[TrialRecord], edits: dict[str, float], num_planned: dict[Kind, int]) -> list[str]:
    lines = ["| runs | done | planned | right verdict | wrong verdict |", "|---|---|---|---|---|"]
    for kind, label in _KINDS.items():
        of_kind = [record for record in records if record.kind == kind]
        num_right = sum(is_right(record, edits) is True for record in of_kind)
        num_wrong = sum(is_wrong(record, edits) for record in of_kind)
        lines.append(f"| {label} | {len(of_kind)} | {num_planned.get(kind, 0)} | {num_right} | {num_wrong} |")
    return ["\n".join(lines) + "\n"]


def _render_programs(records: Sequence[TrialRecord], edits: dict[str, float]) -> list[str]:
    lines = [
        "| planted program | runs | edit | try, mean | within 3 points | right verdict |",
        "|---|---|---|---|---|---|",
    ]
    for program in dict.fromkeys(record.program for record in records if record.kind == "planted"):
        of_program = [record for record in records if (record.kind, record.program) == ("planted", program)]
        edit = edits.get(program)
        changes = [record.change for record in of_program if record.change is not None]
        near = "" if edit is None else f"{sum(abs(change - edit) <= POINTS for change in changes)}"
        num_right = sum(is_right(record, edits) is True for record in of_program)
        mean = _percent(fmean(changes) if changes else None)
        lines.append(f"| {program} | {len(of_program)} | {_percent(edit)} | {mean} | {near} | {num_right} |")
    return ["\n".join(lines) + "\n"]


def _render_runs(records: Sequence[TrialRecord], edits: dict[str, float]) -> list[str]:
    lines = [
        "| date | machine | kind | program | edit | try | interval | verdict | right | load | s |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for record in records:
        right = {True: "yes", False: "no", None: ""}[is_right(record, edits) if record.kind != "edit" else None]
        edit = record.change if record.kind == "edit" else None if record.kind == "same" else edits.get(record.program)
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
