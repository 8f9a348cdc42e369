"""merge: one file after another, in Python. Whole files flow in; their events, ready for the merged trace, flow out.

The twin of `native_rewrite`, and its judge: it serves where there is no compiler. It holds the events of one file; what
nobody asks for before they are written, such as most args, lies packed.
"""

import pickle
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from kinetoscope.formats.chrome import ChromeTrace, Event, collect_chrome
from kinetoscope.formats.nesting import nest
from kinetoscope.formats.perfetto import PerfettoWriter
from kinetoscope.formats.tracks import Descriptions, plain_pid, plain_tid, renumber_ids, with_plain_places
from kinetoscope.merge.input_file import InputFile, Moment, Plan, batches_by_pid, file_state, notes_of

_LIGHT_FIELDS = ("ph", "name", "cat", "pid", "tid", "ts", "dur", "id", "id2", "bind_id")
_ARGS_ASKED_FOR = frozenset({"kinetoscope", "batch"})
_PACKED = "packed"  # the field that holds the others


class PureRewriter:
    """Looks at one file, and rewrites it."""

    def survey(
        self, path: str, position: int, align_on: str | None, on_bytes: Callable[[int], None], *, checks: bool = False
    ) -> InputFile:
        """What the file holds; ``checks`` counts what may be wrong with it. Raises `TraceFileError`."""
        state = file_state(path)
        trace = collect_chrome(path, _packed, on_bytes)
        timed = [event for event in trace.events if "ts" in event and event.get("ph") != "M"]
        return InputFile(
            path=path,
            position=position,
            state=state,
            header=trace.header,
            base_ns=trace.base_ns,
            has_clock=trace.has_clock,
            pids=list({plain_pid(event.get("pid")) for event in trace.events}),
            earliest_ns=min((event["ts"] for event in timed), default=None),
            latest_ns=_latest(timed),
            aligned_at_ns=min((event["ts"] for event in timed if event.get("name") == align_on), default=None),
            batches=batches_by_pid(trace.events),
            repairs=trace.repairs,
            counts=_counts(trace) if checks else {},
            notes=notes_of(trace.events),
        )

    def rewrite(self, file: InputFile, plan: Plan, writer: Any, on_bytes: Callable[[int], None]) -> None:
        """Writes the events of ``file``, as ``plan`` says; adds to its counts."""
        trace = collect_chrome(file.path, _packed, on_bytes)
        file.require_unchanged()
        if plan.keeps_places or not file.is_ours:
            counts = nest(trace.events)
            plan.num_clipped += counts.clipped
            plan.num_moved += counts.moved
        events = list(map(with_plain_places, trace.events)) if plan.keeps_places else _placed(trace, file, plan)
        if plan.windows:
            windows = {rank: _Window(*moment) for rank, moment in plan.windows.items()}
            events = [event for event in events if event["pid"] in windows and windows[event["pid"]].keeps(event)]
        plan.num_events += len(events)
        if isinstance(writer, PerfettoWriter):
            events.sort(key=lambda event: event.get("ts", 0))
            writer.write_in_order(map(_unpacked, events))
        else:
            writer.write(map(_unpacked, events))


def _packed(event: Event) -> Event:
    """The event with the fields that are asked for as they are, and the others packed."""
    args = event.get("args")
    is_light = event.get("ph") == "M" or not isinstance(args, dict) or not _ARGS_ASKED_FOR.isdisjoint(args)
    names = (*_LIGHT_FIELDS, "args") if is_light else _LIGHT_FIELDS
    light = {name: _shared(event[name]) for name in names if name in event}
    heavy = {name: value for name, value in event.items() if name not in light}
    return light | {_PACKED: pickle.dumps(heavy)} if heavy else light


def _shared(value: Any) -> Any:
    """The value; the same object for each string that is the same."""
    return sys.intern(value) if type(value) is str else value


def _unpacked(event: Event) -> Event:
    """The event with all its fields; its args also say what nesting did."""
    if _PACKED not in event:
        return event
    heavy = pickle.loads(event.pop(_PACKED))
    if "args" in heavy:
        heavy["args"] |= event.get("args", {})
    return event | heavy


def _latest(timed: list[Event]) -> int | None:
    """When the last span ends; where there are none, when the last event is."""
    spans = [event["ts"] + event.get("dur", 0) for event in timed if event.get("ph") == "X"]
    return max(spans or (event["ts"] for event in timed), default=None)


def _counts(trace: ChromeTrace) -> dict[str, int]:
    flows = [(str(event.get("id")), repr(event.get("cat"))) for event in trace.events if event.get("ph") == "s"]
    depths: dict[Any, int] = defaultdict(int)
    num_lone_ends = 0
    for event in trace.events:
        track = plain_pid(event.get("pid")), plain_tid(event.get("tid"))
        depths[track] += {"B": 1, "E": -1}.get(str(event.get("ph")), 0)
        num_lone_ends += depths[track] < 0
        depths[track] = max(0, depths[track])
    counts = {"events": len(trace.events), "repeated_flows": len(flows) - len(set(flows))}
    nesting = nest(trace.events)
    pairs = {"lone_begins": sum(depths.values()), "lone_ends": num_lone_ends}
    return counts | pairs | {"clipped": nesting.clipped, "moved": nesting.moved}


def _placed(trace: ChromeTrace, file: InputFile, plan: Plan) -> list[Event]:
    """The events that are kept, where and when they are in the merged trace."""
    events = list(_adopt(trace, file, plan))
    plan.next_id = renumber_ids(events, plan.next_id)
    _shift(events, file)
    return events


def _adopt(trace: ChromeTrace, file: InputFile, plan: Plan) -> Iterator[Event]:
    """The events of the ranks that are kept, with their pids and tids."""
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
    """Chooses the events of one rank that are in a window; the end of a pair is where its begin is."""

    def __init__(self, from_ns: int, to_ns: int) -> None:
        self._moment: Moment = from_ns, to_ns
        self._open: dict[Any, list[bool]] = {}

    def keeps(self, event: Event) -> bool:
        """Whether a span touches the window, or anything else lies in it."""
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
