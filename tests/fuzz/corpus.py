"""The corpus that the fuzzers begin with: small traces of every kind of event."""

import json
from pathlib import Path

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


def write_corpus(folder: Path) -> None:
    """Writes the traces, indented and compact."""
    overlapping = {"baseTimeNanoseconds": 10**18, "distributedInfo": {"rank": 1}, "traceEvents": _OVERLAPPING}
    folder.mkdir(parents=True, exist_ok=True)
    for number, trace in enumerate([*_TRACES, overlapping]):
        for indent in (None, 2):
            (folder / f"{number}-{indent}.json").write_text(json.dumps(trace, indent=indent))
