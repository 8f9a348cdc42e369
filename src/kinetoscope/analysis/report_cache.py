"""Cache of reports as JSON in the user's cache folder, used while nothing has changed."""

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
    """A cached report, and the state of its sources."""

    content_hash: str
    rows: ReportRows


class CachedReport:
    """The cache entry of the report on some files, and the state that it must have been computed from."""

    def __init__(self, names: Sequence[str], selection: Selection, content_hash: str) -> None:
        key = repr((sorted(names), _format_selection(selection)))
        self._cache_entry = CacheEntry(hashlib.sha256(os.fsencode(key)).hexdigest()[:32] + REPORT_SUFFIX)
        self._names, self._source_state = names, content_hash

    @classmethod
    def of(cls, sources: Sequence[str | Trace], selection: Selection) -> "CachedReport | None":
        """Return the cache entry for sources; None if they cannot be cached: some are no files, or still grow.

        A rank may be known by the name of its file only, so a link is another file than its target.
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
        """Return the rows of the report, if they are cached and nothing has changed since."""
        try:
            kept = msgspec.json.decode(self._cache_entry.read(), type=_CachedRows)
        except (OSError, ValueError, RecursionError, KinetoscopeError):
            return None
        return kept.rows if kept.content_hash == self._source_state else None

    def write(self, report: RunReport) -> None:
        """Write a report, unless the run is still recording or a file has changed meanwhile.

        If that fails, the report is computed again next time.
        """
        if report.run["state"] == "recording":
            return
        rows = ReportRows(**{field.name: getattr(report, field.name) for field in fields(ReportRows)})
        with suppress(OSError, ValueError, KinetoscopeError):  # ValueError: a name that is not Unicode
            if _source_state(self._names) == self._source_state:
                self._cache_entry.write(msgspec.json.encode(_CachedRows(self._source_state, rows)))


def _format_selection(selection: Selection) -> str:
    """Return all fields of a selection as a string."""
    values = asdict(selection).values()
    return repr([sorted(value) if isinstance(value, frozenset) else value for value in values])


def _source_state(names: Sequence[str]) -> str | None:
    """Return a hash of the state of files and of our code; None if one of them is no file, or still grows."""
    marks = [None if is_spool(name) else fingerprint(name) for name in names]
    if None in marks:
        return None
    state = repr((code_fingerprint(), sorted(zip(names, marks, strict=True))))
    return hashlib.sha256(os.fsencode(state)).hexdigest()
