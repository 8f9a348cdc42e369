"""The corpus that the fuzzers begin with: small traces of every kind of event, and one for each fault found."""

import json
from pathlib import Path
from typing import Any

CHANGE = b"\n--- after the first reading ---\n"
"""Text before it is what the first reading of a file finds, text behind it what the second one finds."""

_MARK = b"\xef\xbb\xbf"  # of UTF-8
_SPAN = {"ph": "X", "name": "aten::mm", "cat": "cpu_op", "pid": 7, "tid": 8, "ts": 1.5, "dur": 2.25}
_TRACES = [
    [_SPAN | {"args": {"External id": 4, "Input Dims": [[4, 8], []], "stream": 7}}] * 3,
    {"baseTimeNanoseconds": 10**18, "traceEvents": [_SPAN, _SPAN | {"ph": "s", "id": 9, "bp": "e"}], "traceName": "x"},
    [_SPAN | {"ph": "B", "pid": "p"}, {"ph": "E", "ts": 2, "pid": "p", "tid": "8"}, {"ph": "M", "args": {"name": "é"}}],
    [
        {"ph": "b", "id": "0x1", "cat": "x", "ts": 1e15},
        {"ph": "C", "ts": 3, "args": {"v": None}},
        {"ph": "i", "s": "g"},
    ],
]
_OVERLAPPING = [
    _SPAN | {"cat": "python_function", "name": "ProfilerStep#1", "args": {"kinetoscope": "said before"}},
    _SPAN | {"ts": 2, "dur": 900.5, "tid": "8", "name": ["aten::mm"]},
    _SPAN | {"ts": 2, "dur": 900.5, "name": 7, "cat": {"a": True}},
    _SPAN | {"ts": 3.125, "dur": 9000, "cat": "kernel", "bind_id": 7, "id": 7},
    {"ph": "M", "name": "thread_name", "pid": 7, "tid": 8, "ts": 0, "args": {"name": "main"}},
    {"ph": "M", "name": "thread_sort_index", "pid": 7, "tid": 8, "args": {"sort_index": 3}},
]


def _flow(phase: str, number: int, tid: int) -> dict[str, Any]:
    return {"ph": phase, "id": number, "bp": "e", "pid": 7, "tid": tid, "ts": 2}


def _name(tid: int) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_name", "pid": 7, "tid": tid, "args": {}}


_FAULTS = {
    # C numbers flows by their begins: the first that it looks up has a number beyond all that it counted.
    "ends-before-begins": [
        _SPAN,
        *(_flow("f", number, 8) for number in range(40, 0, -1)),
        *(_flow("s", number, 8) for number in (*range(1, 41), 5)),
    ],
    "id2-beside-id": [
        _flow("s", 0, 8),
        {key: value for key, value in _flow("s", 0, 8).items() if key != "id"} | {"id2": 9},
    ],
    # C keeps the text of metadata once; the name that came last is one that the thread had before.
    "named-again": [*_OVERLAPPING, _name(8), _OVERLAPPING[-2]],
    "hidden-flows": [*(_flow("s", number, 9) for number in range(90)), _SPAN, *[_flow("s", 99, 8)] * 3],
}
_CHANGES = {
    "new-tracks": ([_SPAN] * 90, [*map(_name, range(60)), *(_SPAN | {"tid": tid} for tid in range(90, 99))]),
    "fewer-events": ([_SPAN] * 9, [_SPAN] * 8),
    "new-flows": (_FAULTS["hidden-flows"], [_SPAN, *(_flow("s", number, 8) for number in range(900, 990))]),
}


def write_corpus(folder: Path) -> None:
    """Write the traces, indented and compact."""
    overlapping = {"baseTimeNanoseconds": 10**18, "distributedInfo": {"rank": 1}, "traceEvents": _OVERLAPPING}
    folder.mkdir(parents=True, exist_ok=True)
    for number, trace in enumerate([*_TRACES, overlapping]):
        for indent in (None, 2):
            (folder / f"{number}-{indent}.json").write_text(json.dumps(trace, indent=indent))
    for name, events in _FAULTS.items():
        (folder / f"{name}.json").write_text(_compact(events))
    (folder / "odd-id-at-the-end-of-a-piece.json").write_bytes(_unusual_id_at_the_end_of_a_chunk())
    spans = _compact([_SPAN] * 9)
    broken = spans.replace("},{", "]]{", 5)
    (folder / "broken-brackets.json").write_bytes(spans.encode() + CHANGE + broken.encode())
    for name, (before, after) in _CHANGES.items():
        (folder / f"{name}.json").write_bytes(_compact(before).encode() + CHANGE + _compact(after).encode())


def _unusual_id_at_the_end_of_a_chunk() -> bytes:
    """The mark in front makes the fuzzers read pieces of a kilobyte. Python writes the odd id anew."""
    filled, unusual = _SPAN | {"args": {"filled": ""}}, _SPAN | {"ph": "b", "id": "a"}
    num_missing = 1024 - len(_MARK) - len(_compact([filled, unusual]).removesuffix("]}"))
    filled = _SPAN | {"args": {"filled": "x" * num_missing}}
    return _MARK + _compact([filled, unusual, *[_SPAN] * 9]).encode()


def _compact(events: list[dict[str, Any]]) -> str:
    return json.dumps({"baseTimeNanoseconds": 10**18, "traceEvents": events}, separators=(",", ":"))
