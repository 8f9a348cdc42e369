"""A reference for `kinetoscope.merge.native_rewrite`: it holds all events of a file, each as a dict."""

import math
from collections import Counter, defaultdict
from typing import Any

from kinetoscope.formats.chrome import ChromeTrace, Event, collect_chrome
from kinetoscope.formats.chrome_event import MAX_DURATION_NS, UNIX_NS
from kinetoscope.formats.nesting import nest
from kinetoscope.formats.track_ids import Descriptions, IdNumbers, is_track_metadata, normalize_ids, plain_pid
from kinetoscope.formats.viewers import (
    MAX_TIME_NS,
    BoundFlows,
    adapt_to_viewers,
    find_misread_tids,
    find_viewer_track,
    flow_id,
    flow_number,
)
from kinetoscope.merge.input_file import (
    CounterSeries,
    InputFile,
    batches_by_pid,
    count_overlapping_steps,
    file_state,
    kinetoscope_header,
    read_composer_metadata,
)
from reference.perfetto_packets import ReferencePerfettoWriter, counter_numbers, series_hash, subject_hash

ID_PHASES = frozenset("stfbneSTpFNOD")


def use_reference(monkeypatch) -> None:
    """Let merges, checks and repairs of this process use the reference."""
    for module in ("merge_traces", "check"):
        monkeypatch.setattr(f"kinetoscope.merge.{module}.NativeRewriter", ReferenceRewriter)
    monkeypatch.setattr("kinetoscope.merge.trace_output.PerfettoWriter", ReferencePerfettoWriter)


class ReferenceRewriter:
    """Reads one file, then writes its events; see `NativeRewriter`."""

    def __init__(self, options):
        self.options = options

    def survey(self, path, position, on_bytes):
        state, trace = file_state(path), collect_chrome(path)
        counts = make_viewable(trace) if self.options.checks else {}
        timed = [event for event in trace.events if "ts" in event and event.get("ph") != "M"]
        ends = [event["ts"] + event.get("dur", 0) for event in timed if event.get("ph") == "X"]
        named = [event["ts"] for event in timed if event.get("name") == self.options.align_on]
        health = trace.health
        if not kinetoscope_header(trace.header).get("merged"):
            health.num_overlapping_steps = count_overlapping_steps(trace.events)
        return InputFile(
            path=path,
            position=position,
            state=state,
            header=trace.header,
            base_ns=trace.base_ns,
            has_clock=trace.base_ns > 0 or any(event["ts"] > UNIX_NS for event in timed),
            pids=list({plain_pid(event.get("pid")) for event in trace.events}),
            earliest_ns=min((event["ts"] for event in timed), default=None),
            latest_ns=max(ends or (event["ts"] for event in timed), default=None),
            aligned_at_ns=min(named, default=None),
            batches=batches_by_pid(trace.events),
            repairs=trace.repairs,
            health=health,
            counts=count_faults(trace, counts) if self.options.checks else {},
            notes=read_composer_metadata(trace.events),
            counters=find_counters(trace.events) if self.options.compares_counters else None,
        )

    def rewrite(self, file, plan, writer, on_bytes):
        trace = collect_chrome(file.path)
        file.require_unchanged()
        if plan.keeps_tracks:
            events = keep_places(trace, file, plan, writer.base_ns)
        else:
            if not file.is_kinetoscope:
                add_counts(plan, nest(trace.events))
            described = describe_tracks(trace, file)
            events = [event for event in trace.events if adopt(event, file, plan, described)]
            plan.next_id = renumber_ids(events, plan.next_id)
            shift(events, file)
        for rank, window in plan.windows.items():
            depths = defaultdict(list)
            events = [event for event in events if event["pid"] != rank or is_kept(event, window, depths[event["tid"]])]
        if plan.windows:
            events = [event for event in events if event["pid"] in plan.windows]
        plan.num_events += len(events)
        if isinstance(writer, ReferencePerfettoWriter):
            writer.write_in_order(sorted(events, key=lambda event: event.get("ts", 0)))
        else:
            writer.write(events)


def count_faults(trace: ChromeTrace, counts: dict[str, int]) -> dict[str, int]:
    """Return the counts of a check, with ``counts`` of events that viewers do not show."""
    flows = [flow_key(event) for event in trace.events if event.get("ph") == "s"]
    spans = [event for event in trace.events if event.get("ph") == "X"]
    far = [event["ts"] - trace.base_ns for event in spans]
    counts = counts | {
        "repeated_flows": counts["repeated_flows"] + len(flows) - len(set(flows)),
        "hidden_flows": len(hidden_flows(trace.events)),
        "misread": len(misread(trace)),
        "negative": sum("ts" in event and event["ts"] < trace.base_ns for event in trace.events),
        "rounded": sum(abs(time_ns) >= MAX_TIME_NS and time_ns % 1000 != 0 for time_ns in far),
    }
    depths: Counter[Any] = Counter()
    num_lone_ends = 0
    for event in trace.events:
        track = find_viewer_track(event.get("pid"), event.get("tid"))
        depths[track] += {"B": 1, "E": -1}.get(str(event.get("ph")), 0)
        num_lone_ends += depths[track] < 0
        depths[track] = max(0, depths[track])
    nesting = nest(trace.events, find_track=find_viewer_track)
    counts |= {"lone_begins": depths.total(), "lone_ends": num_lone_ends}
    return counts | {"clipped": nesting.clipped, "moved": nesting.moved}


def make_viewable(trace: ChromeTrace) -> dict[str, int]:
    """Change events so that viewers accept them, and leave out the others. Return the numbers of both."""
    shown = [adapt_to_viewers(event) for event in trace.events]
    counts = {
        "events": len(trace.events) + trace.health.num_timeless,
        "hidden": shown.count(None),
        "repaired": sum(new is not None and new is not old for new, old in zip(shown, trace.events, strict=True)),
    }
    flows = BoundFlows()
    trace.events = [normalize_ids(flows.part(event)) for event in shown if event is not None]
    return counts | {"repeated_flows": flows.num_repeated}


def misread(trace: ChromeTrace) -> dict[tuple[Any, Any], Any]:
    places = [(event.get("pid"), event["tid"]) for event in trace.events if event.get("tid") is not None]
    shown = (event for event in trace.events if not is_track_metadata(event))
    return find_misread_tids(places, {find_viewer_track(event.get("pid"), event.get("tid")) for event in shown})


def keep_places(trace: ChromeTrace, file: InputFile, plan: Any, base_ns: int) -> list[Event]:
    """Return the events that viewers show, on their own tracks, changed where viewers would misread or drop them."""
    make_viewable(trace)
    hidden, changed_tids = hidden_flows(trace.events), misread(trace)
    add_counts(plan, nest(trace.events, find_track=find_viewer_track))
    shift(trace.events, file)
    kept = [event for number, event in enumerate(trace.events) if number not in hidden]
    kept = [event for event in kept if event.get("ts", 0) - base_ns <= MAX_DURATION_NS]
    num_begun: Counter[Any] = Counter()
    for event in kept:
        track = find_viewer_track(event.get("pid"), event.get("tid"))
        if track in changed_tids and (event.get("tid") is not None or not is_track_metadata(event)):
            event["tid"] = changed_tids[track]
        if event.get("ph") == "M" and "ts" in event:
            event["ts"] = max(event["ts"], base_ns)
        if event.get("ph") in ("s", "t", "f") and "id" in event:
            key = flow_key(event)
            num_begun[key] += event["ph"] == "s"
            if num_begun[key] > 1:
                event["id"] = flow_id(f"{key[0]}#{num_begun[key]}")
    return kept


def add_counts(plan: Any, counts: Any) -> None:
    plan.num_clipped += counts.clipped
    plan.num_moved += counts.moved


def describe_tracks(trace: ChromeTrace, file: InputFile) -> dict[int, Descriptions]:
    """Return the names of tracks, by rank."""
    by_rank: dict[int, list[Event]] = {rank: [] for rank in file.ranks}
    for event in trace.events:
        by_rank[file.rank_of(event.get("pid"))].append(event)
    return {rank: Descriptions(events) for rank, events in by_rank.items()}


def adopt(event: Event, file: InputFile, plan: Any, described: dict[int, Descriptions]) -> bool:
    """Give an event its new pid and tid; return False if its rank is left out, or if it names a track."""
    rank = file.rank_of(event.get("pid"))
    if rank not in plan.tracks:
        return False
    if not file.is_merged:
        plan.tracks[rank].set_host(file.host)
    return plan.tracks[rank].adopt_one(event, described[rank], is_kinetoscope=file.is_kinetoscope)


def shift(events: list[Event], file: InputFile) -> None:
    """Move events to the common clock."""
    for event in events:
        if "ts" in event:
            end_ns = file.common_ns(event["ts"] + event.get("dur", 0))
            event["ts"] = file.common_ns(event["ts"])
            if "dur" in event:
                event["dur"] = end_ns - event["ts"]


def is_kept(event: Event, window: tuple[int, int], are_begins_kept: list[bool]) -> bool:
    """Return whether a span touches the window, or another event is in it. An ``E`` is kept if its ``B`` is."""
    if "ts" not in event:
        return True
    from_ns, to_ns = window
    begin_ns, phase = event["ts"], event.get("ph")
    if phase == "X":
        return begin_ns <= to_ns and begin_ns + event.get("dur", 0) >= from_ns
    if phase == "E":
        return bool(are_begins_kept) and are_begins_kept.pop()
    is_inside = from_ns <= begin_ns <= to_ns
    if phase == "B":
        are_begins_kept.append(is_inside)
    return is_inside


# -- flows and ids --


def flow_key(event: Event) -> tuple[int, str, str]:
    """Return the key by which viewers distinguish flows."""
    return flow_number(event.get("id")), repr(event.get("cat")), repr(event.get("name"))


def hidden_flows(events: list[Event]) -> set[int]:
    """Return the indexes of the flows that viewers drop because their track has no span there."""
    by_track: dict[Any, list[tuple[int, Event]]] = defaultdict(list)
    for number, event in enumerate(events):
        by_track[find_viewer_track(event.get("pid"), event.get("tid"))].append((number, event))
    return {number for track in by_track.values() for number in _hidden_on_track(track)}


def _hidden_on_track(track: list[tuple[int, Event]]) -> set[int]:
    hidden: set[int] = set()
    spans, others, early = [], [], []
    latest_end_ns, num_open, is_emptied = -math.inf, 0, False
    for number, event in track:
        phase, begin_ns = str(event.get("ph")), event.get("ts", 0)
        if phase in "XB" or (phase in "iIR" and event.get("s") not in ("g", "p")):
            (spans if phase == "X" else others).append(begin_ns)
            num_open += phase == "B"
            latest_end_ns = max(latest_end_ns, begin_ns + (event.get("dur", 0) if phase == "X" else 0))
            is_emptied = False
        elif phase == "E":
            num_open = max(0, num_open - 1)
            is_emptied = num_open == 0 and latest_end_ns <= begin_ns
        elif phase in "st" or (phase == "f" and event.get("bp") == "e"):
            if is_emptied:
                hidden.add(number)
            early.append((number, begin_ns, bool(others)))
    first, first_other = min(spans, default=math.inf), min(others, default=math.inf)
    for number, at_ns, has_other in early:
        if at_ns < first and (at_ns < first_other or (at_ns == first_other and not has_other)):
            hidden.add(number)
    return hidden


def renumber_ids(events: list[Event], first: int) -> int:
    """Give flows and async spans of one file ids from ``first`` on; return the next free id."""
    given = []
    for event in events:
        names = ("id", "id2", "bind_id") if str(event.get("ph")) in ID_PHASES else ("bind_id",)
        given += [(name, event[name]) for name in names if name in event]
    plain = [int(value) for name, value in given if name != "id2" and _is_plain(value)]
    is_plain = bool(given) and len(plain) == len(given)
    numbers = IdNumbers(first, min(plain), max(plain)) if is_plain else IdNumbers(first)
    for event in events:
        numbers.renumber(event)
    return numbers.next_first


def _is_plain(given: Any) -> bool:
    text = str(given) if type(given) in (int, str) else ""
    is_number = len(text) <= 16 and text.isascii() and text.isdecimal()
    return is_number and str(int(text)) == text and int(text) <= 2**53


def find_counters(events: list[Event]) -> list[CounterSeries] | None:
    """Return the counters of a file; None if there are too many."""
    values: dict[tuple[Any, str, str], float | None] = {}
    for event in events:
        if event.get("ph") == "C" and "ts" in event:
            for series, value in counter_numbers(event):
                key = plain_pid(event.get("pid")), str(event.get("name", "")), series
                values[key] = value if values.setdefault(key, value) == value else None
    if len(values) > 1 << 16:
        return None
    return [
        CounterSeries(pid, series_hash(name, series), subject_hash(name), value)
        for (pid, name, series), value in values.items()
    ]
