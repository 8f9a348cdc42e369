"""analysis: the report on a run as JSON in the user's own cache folder, used again while nothing has changed."""

import hashlib
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, fields

import msgspec

from kinetoscope.analysis.run_report import ReportRows, RunReport
from kinetoscope.analysis.summaries import Selection
from kinetoscope.core.paths.user_cache import REPORT_SUFFIX, CacheEntry, code_fingerprint
from kinetoscope.errors import KinetoscopeError
from kinetoscope.frames.load import fingerprint, is_spool
from kinetoscope.frames.trace import Trace


class _CachedRows(msgspec.Struct):
    """A kept report, and what it was made from."""

    content_hash: str
    rows: ReportRows


class CachedReport:
    """The place of the report on some files, and what it must have been made from to be used."""

    def __init__(self, names: Sequence[str], selection: Selection, content_hash: str) -> None:
        key = repr((sorted(names), _format_selection(selection)))
        self._cache_entry = CacheEntry(hashlib.sha256(os.fsencode(key)).hexdigest()[:32] + REPORT_SUFFIX)
        self._names, self._source_state = names, content_hash

    @classmethod
    def of(cls, sources: Sequence[str | Trace], selection: Selection) -> "CachedReport | None":
        """The place of the report on these sources; None if it cannot be kept: some are no files, or still grow.

        A rank may be known by the name of its file only, so a link is another file than what it leads to.
        """
        files = [source for source in sources if isinstance(source, str) and os.path.exists(source)]
        names = [os.path.join(os.path.realpath(os.path.dirname(file)), os.path.basename(file)) for file in files]
        content_hash = _source_state(names)
        if content_hash is None or len(names) < len(sources):
            return None
        with suppress(OSError, KinetoscopeError):
            return cls(names, selection, content_hash)
        return None

    def read(self) -> ReportRows | None:
        """The rows of the report, if it is there and nothing has changed since."""
        try:
            kept = msgspec.json.decode(self._cache_entry.read(), type=_CachedRows)
        except (OSError, ValueError, RecursionError, KinetoscopeError):
            return None
        return kept.rows if kept.content_hash == self._source_state else None

    def write(self, report: RunReport) -> None:
        """Keeps a report, unless the run goes on or a file has changed meanwhile. If that fails, it is worked out again
        next time."""
        if report.run["state"] == "recording":
            return
        rows = ReportRows(**{field.name: getattr(report, field.name) for field in fields(ReportRows)})
        with suppress(OSError, ValueError, KinetoscopeError):  # ValueError: a name that is not Unicode
            if _source_state(self._names) == self._source_state:
                self._cache_entry.write(msgspec.json.encode(_CachedRows(self._source_state, rows)))


def _format_selection(selection: Selection) -> str:
    """Every field of a selection."""
    values = asdict(selection).values()
    return repr([sorted(value) if isinstance(value, frozenset) else value for value in values])


def _source_state(names: Sequence[str]) -> str | None:
    """The state of files, and of our own code; None if one of them is no file, or still grows."""
    marks = [None if is_spool(name) else fingerprint(name) for name in names]
    if None in marks:
        return None
    own = repr((code_fingerprint(), sorted(zip(names, marks, strict=True))))
    return hashlib.sha256(os.fsencode(own)).hexdigest()
