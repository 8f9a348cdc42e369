"""Rewriting of files in C, one after another and piece by piece.

The first pass finds out what the file holds and how its spans nest. The second writes its events with new pids, tids,
times and ids, and everything else unchanged. Neither keeps the text. An event that C does not accept is returned,
written anew in Python, and passed in again.
"""

from array import array
from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from typing import Any

from kinetoscope.formats.chrome import (
    Event,
    build_empty_error,
    build_no_events_error,
    encode_event,
    encode_json,
    encode_text,
    find_base_ns,
    has_phase,
    header_in,
)
from kinetoscope.formats.chrome_event import event_to_nanoseconds, read_event
from kinetoscope.formats.chrome_stream import NOT_STRICT, Stop, StreamedTrace, stream_chrome
from kinetoscope.formats.health import Health, are_timeless, has_lost_time
from kinetoscope.formats.nesting import OverlapTracks
from kinetoscope.formats.perfetto import PerfettoWriter, process_uuid, track_uuid
from kinetoscope.formats.track_ids import Descriptions, IdNumbers, Role, normalize_ids
from kinetoscope.formats.viewers import BoundFlows, adapt_to_viewers, find_misread_tids, find_viewer_track
from kinetoscope.merge.input_file import (
    InputFile,
    Plan,
    SurveyOptions,
    batches_by_pid,
    count_overlapping_steps,
    file_state,
    kinetoscope_header,
    read_composer_metadata,
    read_counter_facts,
)
from kinetoscope.native import native

INSPECT_CANONICAL = 1
INSPECT_AGAIN = 2
_ROLES = (None, Role.LOOP, Role.BACKWARD)
_MAX_PENDING = 1 << 20  # spans, of 32 bytes, that wait for earlier spans of their track
_MAX_KEPT_ACTIONS = 100_000  # spans cut or moved; a file with more is surveyed twice
_COUNTS = ("clipped", "moved", "repeated_flows", "hidden_flows", "lone_begins", "lone_ends", "negative", "rounded")
_ALWAYS = (-(2**63), 2**63 - 1)

_Output = tuple[bytes, bytes, bool, int, int, int, int, int]
"""A track to write: pid and tid as text, whether it is kept, from when and until when, its and its process's number in
Perfetto, and the number of the overlap track (0 for none)."""


class NativeRewriter:
    """Surveys one file, then rewrites it."""

    def __init__(self, options: SurveyOptions) -> None:
        self._options = options
        self._survey: Survey | None = None

    def survey(self, path: str, position: int, on_bytes: Callable[[int], None]) -> InputFile:
        """Read the file and collect the facts that ``options`` select. Raises `TraceFileError`."""
        state = file_state(path)
        survey = _survey_file(path, self._options, on_bytes)
        facts, metadata = survey.facts, survey.metadata
        header = header_in(metadata) | survey.trace.header
        survey.require_events(path)
        base_ns = find_base_ns(header, (event for event in metadata if event.get("ph") == "M"))
        batches = batches_by_pid(survey.steps(base_ns))
        if facts["num_actions"] <= _MAX_KEPT_ACTIONS:
            self._survey = survey
        return InputFile(
            path=path,
            position=position,
            state=state,
            header=header,
            base_ns=base_ns,
            has_clock=bool(base_ns) or facts["has_unix_times"],
            pids=[event.get("pid") for event in metadata] + [pid for pid, *_ in survey.tracks],
            earliest_ns=_add(facts["earliest_ns"], base_ns),
            latest_ns=_add(facts["latest_ns"], base_ns),
            aligned_at_ns=_add(facts["aligned_ns"], base_ns),
            batches=batches,
            repairs=survey.trace.repairs,
            health=survey.health_of(header, base_ns),
            counts=survey.counts(),
            notes=read_composer_metadata(metadata),
            counters=read_counter_facts(facts["counters"], [pid for pid, *_ in survey.tracks]),
        )

    def rewrite(self, file: InputFile, plan: Plan, writer: Any, on_bytes: Callable[[int], None]) -> None:
        """Read the file again and write its events by ``plan``; add to its counts."""
        survey = self._survey or _survey_file(file.path, self._options, _ignore_progress)
        facts = survey.facts
        numbers = IdNumbers(plan.next_id, *_plain_ids(facts))
        outputs, added = _keep_tracks(survey) if plan.keeps_tracks else (list(track_outputs(survey, file, plan)), [])
        survey.text.plan(
            outputs,
            file.base_ns + file.shift_ns - writer.base_ns,
            plan.next_id - numbers.lowest,
            numbers.are_plain,
            bool(plan.windows),
            plan.keeps_tracks,
            writer.begin_sequence() if isinstance(writer, PerfettoWriter) else 0,
            _drift_numbers(file),
        )
        if isinstance(writer, PerfettoWriter):
            survey.text.place_counters(
                *map(_sorted_uuids, (writer.counter_tracks.alone, writer.counter_tracks.unchanged))
            )
        inspection = INSPECT_AGAIN if survey.trace.is_strict else 0
        put = writer.write_packets if isinstance(writer, PerfettoWriter) else writer.write_lines
        renumber = None if plan.keeps_tracks else numbers.renumber
        try:
            leaves_out = survey.leaves_out_timeless
            flows = BoundFlows() if self._options.checks else None
            writing = Rewrite(survey.text, put, renumber, inspection, flows, leaves_out_timeless=leaves_out)
            stream_chrome(file.path, writing, on_bytes=on_bytes)
            put(survey.text.finish_rewrite())
        except native.TextChangedError:
            raise file.changed_error() from None
        file.require_unchanged()
        writer.write(added)
        plan.next_id = numbers.next_first
        plan.num_events += survey.text.num_written
        plan.num_clipped += facts["num_clipped"]
        plan.num_moved += facts["num_moved"]
        self._survey = None


class Survey:
    """A sink for the first pass over a file; ``facts`` are those that C has collected."""

    def __init__(self, max_pending: int, options: SurveyOptions, *, leaves_out_timeless: bool = False) -> None:
        self._options = options
        self._max_pending = max_pending
        self.leaves_out_timeless = leaves_out_timeless
        self.text: Any = None
        self.trace = StreamedTrace()
        self.facts: dict[str, Any] = {}
        self._num_hidden = self._num_repaired = 0
        self._has_phases = False
        self._flows = BoundFlows()

    def begin(self, header: dict[str, Any]) -> None:
        """Store the header of the file, with the base of its times."""
        requested = self._options
        nests = requested.checks or "kinetoscope" not in header
        align_on = encode_text(requested.align_on) if requested.align_on is not None else b""
        self.text = native.TraceText(
            nests,
            self._max_pending,
            align_on,
            requested.checks,
            requested.compares_counters,
            self.leaves_out_timeless,
        )

    def end(self, trace: StreamedTrace) -> None:
        """Store the faults of the file at the end of the pass."""
        self.text.finish_survey()
        self.trace, self.facts = trace, self.text.facts()

    @property
    def num_comma_errors(self) -> int:
        """The number of missing or extra commas between events."""
        return self.text.num_stray

    def take(self, text: bytearray, start: int, end: int, is_first: bool) -> tuple[int, Stop]:
        """Accept events, as `EventSink.take` does."""
        return self.text.survey(text, start, end, is_first, 0)

    def add_event(self, event: Event, text: bytes) -> bool:
        """Add an event, as `EventSink.add_event` does."""
        if not event_to_nanoseconds(event, 0):
            self.text.leave_out()
            return False
        shown = adapt_to_viewers(event) if self._options.checks else event
        self._num_hidden += shown is None
        self._has_phases |= has_phase(event)
        self._num_repaired += shown is not event and shown is not None
        if shown is None:
            self.text.leave_out()
            return True
        anew = encode_event(normalize_ids(self._split_pair(shown)), 0)
        return self.text.survey(anew, 0, len(anew), True, INSPECT_CANONICAL)[0] == len(anew)

    def _split_pair(self, event: Event) -> Event:
        is_wanted = self._options.checks and not (self.leaves_out_timeless and has_lost_time(event))
        return self._flows.part(event) if is_wanted else event

    @property
    def has_timeless(self) -> bool:
        """True if events have lost their time, and were not left out yet."""
        facts = self.facts
        are = are_timeless(facts["num_at_zero"], facts["earliest_of_others_ns"])
        return are and not self.leaves_out_timeless

    @property
    def health(self) -> Health:
        """The faults of the file, as far as its text shows them."""
        found = self.trace.health
        if self.has_timeless or self.leaves_out_timeless:
            found.num_timeless, found.first_timeless = self.facts["num_at_zero"], self.facts["first_at_zero"]
        return found

    def health_of(self, header: dict[str, Any], base_ns: int) -> Health:
        """Return the faults of the file, with those that its header and its steps show."""
        found = self.health
        if not kinetoscope_header(header).get("merged"):
            found.num_overlapping_steps = count_overlapping_steps(self.steps(base_ns))
        return found

    @property
    def has_phases(self) -> bool:
        """True if at least one event has a phase, as all events of a trace have."""
        return self.facts["has_phases"] or self._has_phases

    @property
    def num_events(self) -> int:
        """The number of events, including those that viewers do not show."""
        return self.facts["num_events"] + self._num_hidden

    def require_events(self, path: str) -> None:
        """Raise `TraceFileError` if there are no events, or if the file is no trace."""
        if not self.num_events and (NOT_STRICT in self.trace.repairs or self.num_comma_errors):
            raise build_empty_error(path)
        if not self.has_phases and (self.num_events or self.trace.num_non_objects):
            raise build_no_events_error(path)

    def counts(self) -> dict[str, int]:
        """The counts of a check, by name."""
        counted = {name: self.facts[f"num_{name}"] for name in _COUNTS}
        counted["repeated_flows"] += self._flows.num_repeated
        own = {"events": self.num_events, "hidden": self._num_hidden, "repaired": self._num_repaired}
        return own | counted | {"misread": len(self.misread)}

    @cached_property
    def misread(self) -> dict[tuple[Any, Any], Any]:
        """See `find_misread_tids`."""
        places = [(event.get("pid"), event.get("tid")) for event in self.metadata if event.get("tid") is not None]
        for (pid, tid, *_), (*_, has_number, has_text) in zip(self.tracks, self.facts["tracks"], strict=True):
            places += [(pid, tid)] * has_number + [(pid, str(tid))] * has_text
        return find_misread_tids(places, [(pid, tid) for pid, tid, *_ in self.tracks])

    @cached_property
    def metadata(self) -> list[Event]:
        """The file's metadata events, with their times as written, each once in the order of the file.

        If some came again after others, all of them follow in the order of their last occurrence.
        """
        events = [read_event(text.decode(errors="replace"), 0)[0] for text in self.facts["metadata"]]
        last = memoryview(self.facts["metadata_last"]).cast("Q")
        again = sorted(range(len(events)), key=last.__getitem__)
        return events if again == [*range(len(events))] else [*events, *(events[number] for number in again)]

    @cached_property
    def tracks(self) -> list[tuple[Any, Any, int, bool, Role | None, int]]:
        """The tracks as pid, tid, first event, whether it is a device's, role, and number of overlap tracks."""
        return [
            (_value(pid), _value(tid), first, bool(is_device), _ROLES[role], num_levels)
            for pid, tid, first, is_device, role, num_levels, *_ in self.facts["tracks"]
        ]

    def steps(self, base_ns: int) -> Iterator[Event]:
        """Yield the spans of steps and batches, in unix nanoseconds."""
        text, position = self.facts["steps"].decode(errors="replace"), 0
        while position < len(text):
            event, position = read_event(text, position)
            position += 1
            if event_to_nanoseconds(event, base_ns):
                yield event


def _survey_file(path: str, options: SurveyOptions, on_bytes: Callable[[int], None]) -> Survey:
    max_pending, leaves_out_timeless = _MAX_PENDING, False
    while True:
        survey = Survey(max_pending, options, leaves_out_timeless=leaves_out_timeless)
        survey.end(stream_chrome(path, survey, survey.begin, on_bytes))
        if survey.has_timeless:
            leaves_out_timeless = True
        elif not survey.facts["is_late"]:
            return survey
        else:
            max_pending *= 8  # spans came later than expected: keep more of those that wait
        on_bytes = _ignore_progress  # these bytes are already counted


def _ignore_progress(num_bytes: int) -> None:
    pass


def _keep_tracks(survey: Survey) -> tuple[list[_Output], list[Event]]:
    """Return the outputs of all tracks, like `track_outputs`, where events keep their tracks.

    Exceptions are overlapping spans and tids that viewers misread. The metadata of new tracks is returned too.
    """
    events = [*survey.metadata, *({"pid": pid, "tid": tid} for pid, tid, *_ in survey.tracks)]
    num_known, overlaps, outputs = len(events), OverlapTracks(events, find_viewer_track), []
    misread = survey.misread
    for pid, tid, _, _, _, num_levels, *_ in survey.tracks:
        tid_of_track = encode_json(misread[pid, tid]) if (pid, tid) in misread else b""
        added = [overlaps.add((pid, tid), level) for level in range(1, num_levels)]
        outputs.append((b"", tid_of_track, True, *_ALWAYS, 0, 0, 0))
        outputs += [(b"", str(new_tid).encode(), True, *_ALWAYS, 0, 0, number) for new_tid, number in added]
    return outputs, events[num_known:]


def track_outputs(survey: Survey, file: InputFile, plan: Plan) -> Iterator[_Output]:
    """Return the output of each track and of its overlap tracks, in the order in which C numbers them."""
    places = _TidAllocator(survey, file, plan)
    for number, (pid, _, _, _, _, num_levels) in enumerate(survey.tracks):
        rank = file.rank_of(pid)
        is_kept = rank in plan.tracks and (not plan.windows or rank in plan.windows)
        # C compares them with the times in the file.
        from_ns, to_ns = plan.windows.get(rank, _ALWAYS)
        if plan.windows:
            from_ns, to_ns = (_fit(file.file_ns(time_ns) - file.base_ns) for time_ns in (from_ns, to_ns))
        for level in range(num_levels):
            tid, overlap = places.tids.get((number, level), (0, 0))
            uuids = track_uuid(rank, tid), process_uuid(rank)
            yield str(rank).encode(), str(tid).encode(), is_kept, from_ns, to_ns, *uuids, overlap


class _TidAllocator:
    """The tids of a file's tracks in the merged trace, in the order of their first events.

    It also has the numbers of the overlap tracks.
    """

    def __init__(self, survey: Survey, file: InputFile, plan: Plan) -> None:
        self.tids: dict[tuple[int, int], tuple[int, int]] = {}
        by_rank: dict[int, list[int]] = {}
        for number, (pid, *_) in enumerate(survey.tracks):
            by_rank.setdefault(file.rank_of(pid), []).append(number)
        for rank, numbers in by_rank.items():
            if rank in plan.tracks:
                self._assign_tracks(rank, numbers, survey, file, plan)

    def _assign_tracks(self, rank: int, numbers: list[int], survey: Survey, file: InputFile, plan: Plan) -> None:
        events = [event for event in survey.metadata if file.rank_of(event.get("pid")) == rank]
        events += [{"pid": survey.tracks[number][0], "tid": survey.tracks[number][1]} for number in numbers]
        overlaps = OverlapTracks(events)
        places = []
        for number in numbers:
            pid, tid, first, _, _, num_levels = survey.tracks[number]
            places.append((first, 0, number, (tid, 0)))
            places += [(first, level, number, overlaps.add((pid, tid), level)) for level in range(1, num_levels)]
        kernel_pids = {survey.tracks[number][0] for number in numbers if survey.tracks[number][3]}
        described = Descriptions(events, kernel_pids)
        tracks = plan.tracks[rank]
        if not file.is_merged:
            tracks.set_host(file.host)
        for _, level, number, (tid, overlap) in sorted(places, key=lambda place: place[:3]):
            pid, role = survey.tracks[number][0], survey.tracks[number][4]
            placed = tracks.assign_track(pid, tid, described, role, is_kinetoscope=file.is_kinetoscope)
            self.tids[number, level] = placed, overlap


class Rewrite:
    """A sink for the second pass over a file, which writes its events."""

    num_comma_errors = 0  # the survey has counted them

    def __init__(
        self,
        text: Any,
        put: Callable[[Any], None],
        renumber: Callable[[Event], None] | None,
        inspection: int,
        flows: BoundFlows | None = None,
        *,
        leaves_out_timeless: bool = False,
    ) -> None:
        self._text = text
        self._put = put
        self._renumber = renumber
        self._survey_file = inspection
        self._flows = flows  # None in a merge, which does not change events for viewers
        self._leaves_out_timeless = leaves_out_timeless

    def take(self, text: bytearray, start: int, end: int, is_first: bool) -> tuple[int, Stop]:
        """Write events, as `EventSink.take` does."""
        position, stop, lines = self._text.rewrite(text, start, end, is_first, self._survey_file)
        self._put(lines)
        return position, stop

    def add_event(self, event: Event, text: bytes) -> bool:
        """Write an event, as `EventSink.add_event` does."""
        if not event_to_nanoseconds(event, 0):
            self._text.leave_out()
            return False
        if self._renumber is not None:
            self._renumber(event)
        shown = adapt_to_viewers(event) if self._flows is not None else event
        if shown is None:
            self._text.leave_out()
            return True
        if self._flows is not None and not (self._leaves_out_timeless and has_lost_time(shown)):
            shown = self._flows.part(shown)
        anew = encode_event(normalize_ids(shown), 0)
        position, _, lines = self._text.rewrite(anew, 0, len(anew), True, INSPECT_CANONICAL)
        self._put(lines)
        return position == len(anew)


def _drift_numbers(file: InputFile) -> tuple[int, int, int]:
    """Return the numbers of the file's `DriftCorrection`, relative to the file's base."""
    drift = file.drift
    return (0, 0, 1) if drift is None else (drift.begin_ns - file.base_ns, drift.gain_ns, drift.over_ns)


def _sorted_uuids(uuids: Collection[int]) -> bytes:
    return array("Q", sorted(uuids)).tobytes()


def _value(text: bytes) -> Any:
    return read_event(text.decode(errors="replace"), 0)[0] if text else None


def _add(relative_ns: int | None, base_ns: int) -> int | None:
    return None if relative_ns is None else relative_ns + base_ns


def _fit(time_ns: int) -> int:
    return min(max(time_ns, _ALWAYS[0]), _ALWAYS[1])


def _plain_ids(facts: dict[str, Any]) -> tuple[int | None, int | None]:
    return (None, None) if facts["has_irregular_ids"] else (facts["lowest_id"], facts["highest_id"])
