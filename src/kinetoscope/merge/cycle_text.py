"""Text of a cycle together with the trace contributed to it, written in C.

So a long window needs no memory of Python's and holds the GIL only for moments, while training continues. Recorded
spans, which stay structs, and the file's are nested together. Recorded times are exact, so where spans overlap the
file's are changed.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, BinaryIO, Protocol, cast

from kinetoscope.errors import TraceFileError
from kinetoscope.formats.chrome import ChromeWriter, Event, find_base_ns
from kinetoscope.formats.chrome_stream import StreamedTrace, stream_chrome
from kinetoscope.formats.track_ids import RankTracks, plain_pid, plain_tid
from kinetoscope.merge.input_file import InputFile, Plan, SurveyOptions, file_state
from kinetoscope.merge.native_rewrite import INSPECT_AGAIN, INSPECT_CANONICAL, Rewrite, Survey, track_outputs
from kinetoscope.native import native

_INSPECT_RECORDED = INSPECT_CANONICAL | 4  # INSPECT_FIXED in `src/native/rewrite/event.h`
_ANY_NUMBER = 1 << 40  # of spans may wait for earlier ones: recorded ones come before the file's
_KEPT_IDS = 0, True
_WHOLE = False, False, 0, (0, 0, 1)  # no window, new places, no packets, no drift


class CycleEvents(Protocol):
    """The events of a cycle that come before those of the file, in both passes.

    Times of records count from ``base_ns``. ``survey`` raises ValueError for a record that C cannot write.
    """

    def write(self, writer: ChromeWriter) -> None:
        """Write the events that are not records."""
        ...

    def survey(self, text: Any, base_ns: int) -> None:
        """Pass the records to a `TraceText` that is surveyed."""
        ...

    def rewrite(self, text: Any, base_ns: int, put: Callable[[memoryview], None]) -> None:
        """Pass the records to a `TraceText` that has a plan, and the lines that it makes of them to ``put``."""
        ...


def read_cycle_text(path: str, cycle_events: CycleEvents, names: Sequence[Event]) -> "CycleText | None":
    """Survey the file together with the cycle's events.

    ``names`` are the metadata events that name our threads; they replace the file's names. Returns None if only Python
    can write the cycle: if the file must be repaired, if its times do not count from a base, if ids are not numbers, or
    if a record is damaged.
    """
    state = file_state(path)
    survey = _CycleSurvey(cycle_events, names)
    try:
        survey.end(stream_chrome(path, survey, survey.begin))
    except (TraceFileError, _NotForCError):
        return None
    facts = survey.facts
    is_malformed = (
        survey.trace.repairs or survey.health.repairs or facts["has_irregular_ids"] or facts["has_unix_times"]
    )
    return None if is_malformed else CycleText(path, state, survey, cycle_events)


class CycleText:
    """The result of `read_cycle_text`: `place` assigns the tracks, then `write` writes the events."""

    def __init__(self, path: str, state: tuple[int, int], survey: "_CycleSurvey", cycle_events: CycleEvents) -> None:
        self._path, self._state = path, state
        self._survey = survey
        self._cycle_events = cycle_events

    @property
    def trace(self) -> StreamedTrace:
        """The file's header, and what was wrong with it."""
        return self._survey.trace

    def assign_tracks(self, tracks: RankTracks) -> None:
        """Assign a track of the rank to each track of the file and of the cycle."""
        self._file = InputFile(
            path=self._path,
            position=0,
            state=self._state,
            header={"distributedInfo": {"rank": tracks.rank}},
            base_ns=self._survey.base_ns,
            has_clock=True,
            pids=[],
            earliest_ns=None,
            latest_ns=None,
            aligned_at_ns=None,
            batches={},
            repairs=[],
        )
        self._outputs = list(track_outputs(self._survey, self._file, Plan({tracks.rank: tracks})))

    def write(self, writer: ChromeWriter) -> None:
        """Write the cycle's events, then the file's; raise `TraceFileError` if the file has changed."""
        text = self._survey.text
        text.plan(self._outputs, self._survey.base_ns - writer.base_ns, *_KEPT_IDS, *_WHOLE)

        def rewrite(lines: bytes, is_first: bool) -> int:
            position, _, rewritten = text.rewrite(lines, 0, len(lines), is_first, _INSPECT_RECORDED)
            writer.write_lines(rewritten)
            return position

        try:
            self._cycle_events.write(_writer_to(rewrite, self._survey.base_ns))
            self._cycle_events.rewrite(text, self._survey.base_ns, writer.write_lines)
            stream_chrome(self._path, Rewrite(text, writer.write_lines, None, INSPECT_AGAIN))
            writer.write_lines(text.finish_rewrite())
        except native.TextChangedError:
            raise self._file.changed_error() from None
        self._file.require_unchanged()


class _CycleSurvey(Survey):
    """Takes our events when the file's header, with its base, is read; then the file's events."""

    def __init__(self, cycle_events: CycleEvents, names: Sequence[Event]) -> None:
        super().__init__(_ANY_NUMBER, SurveyOptions())
        self._cycle_events = cycle_events
        self._names = names
        self.base_ns = 0

    def begin(self, header: dict[str, Any]) -> None:
        self.base_ns = find_base_ns(header, ())
        if not self.base_ns:
            raise _NotForCError
        self.text = native.TraceText(True, _ANY_NUMBER, b"", False, False)

        def survey(lines: bytes, is_first: bool) -> int:
            return self.text.survey(lines, 0, len(lines), is_first, _INSPECT_RECORDED)[0]

        self._cycle_events.write(_writer_to(survey, self.base_ns))
        try:
            self._cycle_events.survey(self.text, self.base_ns)
        except ValueError:
            raise _NotForCError from None

    @cached_property
    def metadata(self) -> list[Event]:
        """The file's metadata events, with our names for our threads."""
        named = {_named(event) for event in self._names}
        return [event for event in super().metadata if _named(event) not in named] + list(self._names)


def _named(event: Event) -> tuple[Any, Any] | None:
    """Return the pid and tid that a metadata event names; None for other events."""
    is_name = event.get("ph") == "M" and event.get("name") == "thread_name"
    return (plain_pid(event.get("pid")), plain_tid(event.get("tid"))) if is_name else None


def _writer_to(take: Callable[[bytes, bool], int], base_ns: int) -> ChromeWriter:
    return ChromeWriter(cast("BinaryIO", _Lines(take)), base_ns=base_ns, header={})


class _Lines:
    """A stream that passes lines, whole ones at each write, to ``take``, which returns where it stopped."""

    def __init__(self, take: Callable[[bytes, bool], int]) -> None:
        self._take = take
        self._is_first = True

    def write(self, lines: bytes) -> int:
        if len(lines) and self._take(lines, self._is_first) != len(lines):
            raise _NotForCError
        self._is_first = self._is_first and not len(lines)
        return len(lines)


class _NotForCError(Exception):
    """An event that the native extension does not accept."""
