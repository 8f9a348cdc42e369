"""A number of thousands of digits in a trace, which Python's `int` refuses: every command continues."""

import json

import pytest

from kinetoscope.cli import main

SPAN = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 10, "dur": 90}
STEP = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 1, "tid": 1, "ts": 1, "dur": 100}
LONG = "the long number"

PLACES = {
    "shapes": SPAN | {"args": {"Input Dims": [[LONG, 8], [8, 8]]}},
    "pid": SPAN | {"pid": LONG},
    "time": SPAN | {"ts": LONG},
    "argument": SPAN | {"args": {"of mine": LONG}},
    "counter": {"ph": "C", "name": "queue", "pid": 1, "tid": 1, "ts": 5, "args": {"length": LONG}},
    "flow": {"ph": "s", "name": "flow", "cat": "flow", "id": LONG, "pid": 1, "tid": 1, "ts": 5},
    "order": {"ph": "M", "name": "process_sort_index", "pid": 1, "tid": 1, "args": {"sort_index": LONG}},
}
COMMANDS = {
    "summary": ["summary", "--no-cache", "TRACE"],
    "check": ["check", "TRACE"],
    "report": ["report", "--no-cache", "TRACE", "--out", "FOLDER/report.html"],
    "convert": ["convert", "TRACE", "-o", "FOLDER/trace.pftrace"],
    "merge": ["merge", "-o", "FOLDER/merged.json", "TRACE"],
}


@pytest.mark.parametrize("place", PLACES)
def test_every_command_reads_a_trace_with_a_number_of_5000_digits(place, tmp_path):
    trace = tmp_path / "rank0.json"
    text = json.dumps({"traceEvents": [STEP, SPAN, PLACES[place]]})
    trace.write_text(text.replace(json.dumps(LONG), "9" * 5000), encoding="utf-8")
    for command in COMMANDS.values():
        given = [word.replace("TRACE", str(trace)).replace("FOLDER", str(tmp_path)) for word in command]
        assert main(given) in (0, 1)  # `check` says with 1 what is wrong
