"""analysis: the report on a run as JSON in the user's own cache folder, used again while nothing has changed.

It is never kept in the folder of a run, where anybody may have put it: a report gives advice, and people follow that.
"""

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

import kinetoscope
from kinetoscope.analysis.by_step import StepTimes
from kinetoscope.analysis.collectives import CollectiveRow
from kinetoscope.analysis.findings.finding import Finding
from kinetoscope.analysis.kernels import KernelRow
from kinetoscope.analysis.memory import MemoryRow
from kinetoscope.analysis.operators import OperatorRow
from kinetoscope.analysis.ranks import RankRow
from kinetoscope.analysis.run_report import RunReport
from kinetoscope.analysis.steps import StepRow
from kinetoscope.analysis.stragglers import StragglerRow
from kinetoscope.analysis.summaries import Selection
from kinetoscope.errors import KinetoscopeError
from kinetoscope.table.cache import REPORT_SUFFIX, CachePlace
from kinetoscope.table.load import fingerprint, is_live
from kinetoscope.table.trace import Trace

_OWN_CODE = ("analysis", "table", "formats", "clock")


class _Rows(msgspec.Struct):
    """A kept report, and what it was made from."""

    made_from: str
    run: dict[str, Any]
    ranks: list[RankRow]
    steps: list[StepRow]
    collectives: list[CollectiveRow]
    stragglers: list[StragglerRow]
    operators: list[OperatorRow]
    kernels: list[KernelRow]
    memory: list[MemoryRow]
    findings: list[Finding]
    by_step: list[StepTimes]


class KeptReport:
    """The place of the report on some files, and what it must have been made from to be used."""

    def __init__(self, names: Sequence[str], selection: Selection, made_from: str) -> None:
        asked = repr((sorted(names), _as_text(selection)))
        self._place = CachePlace.of_user(hashlib.sha256(os.fsencode(asked)).hexdigest()[:32] + REPORT_SUFFIX)
        self._names, self._made_from = names, made_from

    @classmethod
    def of(cls, sources: Sequence[str | Trace], selection: Selection) -> "KeptReport | None":
        """The place of the report on these sources; None if it cannot be kept: some are no files, or still grow.

        A rank may be known by the name of its file only, so a link is another file than what it leads to.
        """
        files = [source for source in sources if isinstance(source, str) and os.path.exists(source)]
        names = [os.path.join(os.path.realpath(os.path.dirname(file)), os.path.basename(file)) for file in files]
        made_from = _made_from(names)
        if made_from is None or len(names) < len(sources):
            return None
        with suppress(OSError, KinetoscopeError):
            return cls(names, selection, made_from)
        return None

    def read(self) -> dict[str, Any] | None:
        """The fields of the report, if it is there and nothing has changed since."""
        try:
            rows = msgspec.json.decode(self._place.read(), type=_Rows)
        except (OSError, ValueError, RecursionError, KinetoscopeError):
            return None
        found = {name: getattr(rows, name) for name in _Rows.__struct_fields__}
        return found if found.pop("made_from") == self._made_from else None

    def write(self, report: RunReport) -> None:
        """Keeps a report, unless a file has changed meanwhile. If that fails, it is worked out again next time."""
        fields = {name: getattr(report, name) for name in _Rows.__struct_fields__ if name != "made_from"}
        with suppress(OSError, ValueError, KinetoscopeError):  # ValueError: a name that is not Unicode
            if _made_from(self._names) == self._made_from:
                self._place.write(msgspec.json.encode(_Rows(made_from=self._made_from, **fields)))


def _as_text(selection: Selection) -> str:
    """Every field of a selection."""
    values = asdict(selection).values()
    return repr([sorted(value) if isinstance(value, frozenset) else value for value in values])


def _made_from(names: Sequence[str]) -> str | None:
    """The state of files, and of our own code; None if one of them is no file, or still grows."""
    marks = [None if is_live(name) else fingerprint(name) for name in names]
    if None in marks:
        return None
    own = repr((kinetoscope.__version__, _newest_code_ns(), sorted(zip(names, marks, strict=True))))
    return hashlib.sha256(os.fsencode(own)).hexdigest()


def _newest_code_ns() -> int:
    """When our own code was changed last: a version may be worked on."""
    package = Path(kinetoscope.__file__).parent
    folders = [package, *(package / name for name in _OWN_CODE)]
    files = [file for folder in folders for file in os.scandir(folder) if file.is_file()]
    return max(file.stat().st_mtime_ns for file in files)
