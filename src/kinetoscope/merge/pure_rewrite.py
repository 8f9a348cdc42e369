"""Reads and rewrites one file after another in Python: the twin of `native_rewrite`, and the reference for its tests.

It holds the events of one file. Fields that are not needed until the events are written, such as most args, are kept
pickled.
"""

import pickle
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from kinetoscope.formats.chrome import ChromeTrace, Event, collect_chrome
from kinetoscope.formats.chrome_event import MOST_NS, UNIX_NS
from kinetoscope.formats.health import Health
from kinetoscope.formats.nesting import nest
from kinetoscope.formats.perfetto import PerfettoWriter
from kinetoscope.formats.track_ids import Descriptions, plain_pid, renumber_ids, says_names, with_plain_places
from kinetoscope.formats.viewers import (
    MOST_TIME_NS,
    BoundFlows,
    flow_key,
    hidden_flows,
    made_viewable,
    misread_tids,
    part_repeated_flows,
    viewer_place,
)
from kinetoscope.merge.input_file import (
    InputFile,
    Moment,
    Plan,
    Questions,
    batches_by_pid,
    count_overlapping_steps,
    file_state,
    find_counters,
    notes_of,
    own_header,
)

_LIGHT_FIELDS = (
    "ph",
    "name",
    "cat",
    "pid",
    "tid",
    "ts",
    "dur",
    "id",
    "id2",
    "bind_id",
    "s",
    "bp",
    "flow_in",
    "flow_out",
)
_ARGS_ASKED_FOR = frozenset({"kinetoscope", "batch"})
_PACKED = "packed"  # the field that holds the pickled fields


class PureRewriter:
    """Surveys one file, then rewrites it; see `Rewriter`."""

    def __init__(self, questions: Questions) -> None:
        self._questions = questions

    def survey(self, path: str, position: int, on_bytes: Callable[[int], None]) -> InputFile:
        """What the file holds; see `Rewriter`. Raises `TraceFileError`."""
        asked, state = self._questions, file_state(path)
        trace = collect_chrome(path, _packed, on_bytes)
        counts = _make_viewable(trace) if asked.checks else {}
        timed = [event for event in trace.events if "ts" in event and event.get("ph") != "M"]
        return InputFile(
            path=path,
            position=position,
            state=state,
            header=trace.header,
            base_ns=trace.base_ns,
            has_clock=trace.base_ns > 0 or any(event["ts"] > UNIX_NS for event in timed),
            pids=list({plain_pid(event.get("pid")) for event in trace.events}),
            earliest_ns=min((event["ts"] for event in timed), default=None),
            latest_ns=_latest(timed),
            aligned_at_ns=min((event["ts"] for event in timed if event.get("name") == asked.align_on), default=None),
            batches=batches_by_pid(trace.events),
            repairs=trace.repairs,
            health=_health(trace),
            counts=_counts(trace, counts) if asked.checks else {},
            notes=notes_of(trace.events),
            counters=find_counters(trace.events) if asked.compares_counters else None,
        )

    def rewrite(self, file: InputFile, plan: Plan, writer: Any, on_bytes: Callable[[int], None]) -> None:
        """Writes the events of ``file``, as ``plan`` says; adds to its counts."""
        trace = collect_chrome(file.path, _packed, on_bytes)
        file.require_unchanged()
        if plan.keeps_places:
            events = _kept(trace, file, plan, writer.base_ns)
        else:
            if not file.is_ours:
                plan.note_nesting(nest(trace.events))
            events = _placed(trace, file, plan)
        if plan.windows:
            windows = {rank: _Window(*moment) for rank, moment in plan.windows.items()}
            events = [event for event in events if event["pid"] in windows and windows[event["pid"]].keeps(event)]
        plan.num_events += len(events)
        if isinstance(writer, PerfettoWriter):
            events.sort(key=lambda event: event.get("ts", 0))
            writer.write_in_order(map(_unpacked, events))
        else:
            writer.write(map(_unpacked, events))


def _health(trace: ChromeTrace) -> Health:
    if not own_header(trace.header).get("merged"):
        trace.health.num_overlapping_steps = count_overlapping_steps(trace.events)
    return trace.health


def _packed(event: Event) -> Event:
    """The event with the fields that are needed as they are, and the others pickled."""
    args = event.get("args")
    is_light = event.get("ph") in ("M", "C") or not isinstance(args, dict) or not _ARGS_ASKED_FOR.isdisjoint(args)
    names = (*_LIGHT_FIELDS, "args") if is_light else _LIGHT_FIELDS
    light = {name: _shared(event[name]) for name in names if name in event}
    heavy = {name: value for name, value in event.items() if name not in light}
    return light | {_PACKED: pickle.dumps(heavy)} if heavy else light


def _shared(value: Any) -> Any:
    """The value; equal strings are one object."""
    return sys.intern(value) if type(value) is str else value


def _unpacked(event: Event) -> Event:
    """The event with all its fields; its args include the notes that nesting made."""
    if _PACKED not in event:
        return event
    heavy = pickle.loads(event.pop(_PACKED))
    if "args" in heavy:
        heavy["args"] |= event.get("args", {})
    return event | heavy


def _latest(timed: list[Event]) -> int | None:
    """When the last span ends; without spans, the time of the last event."""
    spans = [event["ts"] + event.get("dur", 0) for event in timed if event.get("ph") == "X"]
    return max(spans or (event["ts"] for event in timed), default=None)


def _counts(trace: ChromeTrace, counts: dict[str, int]) -> dict[str, int]:
    """Return what a check counts among the events that viewers show, with ``counts`` of the others."""
    begins = [flow_key(event) for event in trace.events if event.get("ph") == "s"]
    num_repeated = counts["repeated_flows"] + len(begins) - len(set(begins))
    counts |= {"repeated_flows": num_repeated, "hidden_flows": len(hidden_flows(trace.events))}
    counts |= {"misread": len(_misread(trace)), "negative": _num_negative(trace), "rounded": _num_rounded(trace)}
    counts |= _pairs(trace)
    nesting = nest(trace.events, place=viewer_place)
    return counts | {"clipped": nesting.clipped, "moved": nesting.moved}


def _num_negative(trace: ChromeTrace) -> int:
    return sum("ts" in event and event["ts"] < trace.base_ns for event in trace.events)


def _num_rounded(trace: ChromeTrace) -> int:
    times = (event["ts"] - trace.base_ns for event in trace.events if event.get("ph") == "X")
    return sum(abs(time_ns) >= MOST_TIME_NS and time_ns % 1000 != 0 for time_ns in times)


def _pairs(trace: ChromeTrace) -> dict[str, int]:
    depths: dict[Any, int] = defaultdict(int)
    num_lone_ends = 0
    for event in trace.events:
        track = viewer_place(event.get("pid"), event.get("tid"))
        depths[track] += {"B": 1, "E": -1}.get(str(event.get("ph")), 0)
        num_lone_ends += depths[track] < 0
        depths[track] = max(0, depths[track])
    return {"lone_begins": sum(depths.values()), "lone_ends": num_lone_ends}


def _make_viewable(trace: ChromeTrace) -> dict[str, int]:
    """Change events so that viewers take them, and leave out the others. Return the numbers of both."""
    shown = [made_viewable(event) for event in trace.events]
    pairs = zip(shown, trace.events, strict=True)
    num_mended = sum(mended is not None and mended is not event for mended, event in pairs)
    counts = {
        "events": len(trace.events) + trace.health.num_timeless,
        "hidden": shown.count(None),
        "mended": num_mended,
    }
    flows = BoundFlows()
    trace.events = [with_plain_places(flows.part(event)) for event in shown if event is not None]
    return counts | {"repeated_flows": flows.num_repeated}


def _misread(trace: ChromeTrace) -> dict[tuple[Any, Any], Any]:
    places = [(event.get("pid"), event["tid"]) for event in trace.events if event.get("tid") is not None]
    shown = (event for event in trace.events if not says_names(event))
    return misread_tids(places, {viewer_place(event.get("pid"), event.get("tid")) for event in shown})


def _kept(trace: ChromeTrace, file: InputFile, plan: Plan, base_ns: int) -> list[Event]:
    """The events that viewers show, on their own tracks, changed where viewers would misread or drop them."""
    _make_viewable(trace)
    hidden = hidden_flows(trace.events)
    misread = _misread(trace)
    plan.note_nesting(nest(trace.events, place=viewer_place))
    _shift(trace.events, file)
    kept = [event for number, event in enumerate(trace.events) if number not in hidden]
    kept = [event for event in kept if event.get("ts", 0) - base_ns <= MOST_NS]
    for event in kept:
        track = viewer_place(event.get("pid"), event.get("tid"))
        if track in misread and (event.get("tid") is not None or not says_names(event)):
            event["tid"] = misread[track]
        if event.get("ph") == "M" and "ts" in event:
            event["ts"] = max(event["ts"], base_ns)
    part_repeated_flows(kept)
    return kept


def _placed(trace: ChromeTrace, file: InputFile, plan: Plan) -> list[Event]:
    """The events that are kept, with their tracks, ids and times in the merged trace."""
    events = list(_adopt(trace, file, plan))
    plan.next_id = renumber_ids(events, plan.next_id)
    _shift(events, file)
    return events


def _adopt(trace: ChromeTrace, file: InputFile, plan: Plan) -> Iterator[Event]:
    """The events of the ranks that are kept, with their new pids and tids."""
    by_rank: dict[int, list[Event]] = {rank: [] for rank in file.ranks}
    for event in trace.events:
        by_rank[file.rank_of(event.get("pid"))].append(event)
    described = {rank: Descriptions(events) for rank, events in by_rank.items()}
    for rank in file.ranks:
        if rank in plan.tracks and not file.is_merged:
            plan.tracks[rank].note_host(file.host)
    for event in trace.events:
        rank = file.rank_of(event.get("pid"))
        tracks = plan.tracks.get(rank)
        if tracks is not None and tracks.adopt_one(event, described[rank], is_ours=file.is_ours):
            yield event


def _shift(events: list[Event], file: InputFile) -> None:
    if file.stretch is not None:
        for event in events:
            file.stretch.apply(event)
    if file.shift_ns:
        for event in events:
            if "ts" in event:
                event["ts"] += file.shift_ns


class _Window:
    """Chooses the events of one rank that are in a window. An ``E`` event is kept if its ``B`` event is."""

    def __init__(self, from_ns: int, to_ns: int) -> None:
        self._moment: Moment = from_ns, to_ns
        self._open: dict[Any, list[bool]] = {}

    def keeps(self, event: Event) -> bool:
        """Whether a span touches the window, or another event lies in it."""
        if "ts" not in event:
            return True
        from_ns, to_ns = self._moment
        begin, phase = event["ts"], event.get("ph")
        if phase == "X":
            return begin <= to_ns and begin + event.get("dur", 0) >= from_ns
        opened = self._open.setdefault(event["tid"], [])
        if phase == "E":
            return bool(opened) and opened.pop()
        is_inside = from_ns <= begin <= to_ns
        if phase == "B":
            opened.append(is_inside)
        return is_inside
