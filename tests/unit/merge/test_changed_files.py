"""merge/native_rewrite.py: a file that changes between the two readings is an error, never output.

The changes keep the file's size and its time, as those of a program do that writes through a memory map.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from kinetoscope.errors import TraceFileError
from kinetoscope.formats import chrome_stream
from kinetoscope.merge.check import repair_trace
from kinetoscope.merge.merge_traces import merge_traces

BASE_NS = 1_790_857_026_000_000_000


def span(ts: float, **more: object) -> dict[str, Any]:
    return {"ph": "X", "name": "op", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": ts, "dur": 1} | more


def name_of(tid: int) -> dict[str, Any]:
    return {"ph": "M", "name": "thread_name", "pid": 1, "tid": tid, "args": {"name": "t"}}


def text_of(events: list[dict[str, Any]]) -> str:
    return json.dumps({"baseTimeNanoseconds": BASE_NS, "traceEvents": events})


class ChangingFile:
    """A trace that becomes another one of the same size and time when its first reading is done."""

    def __init__(self, path: Path, before: str, after: str) -> None:
        size = max(len(before), len(after))
        self.path, self._before, self._after = path, before.ljust(size), after.ljust(size)
        path.write_text(self._before)

    def on_progress(self, num_done: int, num_all: int) -> None:
        if 2 * num_done >= num_all and self.path.read_text() == self._before:
            state = self.path.stat()
            self.path.write_text(self._after)
            os.utime(self.path, ns=(state.st_atime_ns, state.st_mtime_ns))


def merge(file: ChangingFile, output: Path) -> None:
    merge_traces(output, file.path, on_progress=file.on_progress)


def repair(file: ChangingFile, output: Path) -> None:
    repair_trace(file.path, output, file.on_progress)


both_ways = pytest.mark.parametrize("write", [merge, repair])


@both_ways
@pytest.mark.parametrize("extension", ["json", "pftrace"])
def test_tracks_that_were_not_there_before_are_an_error(tmp_path, write, extension):
    """Their metadata comes first, so that the tracks of the events have far higher numbers."""
    before = text_of([span(number) for number in range(3000)])
    after = text_of([name_of(tid) for tid in range(2, 1000)] + [span(number, tid=1000 + number) for number in range(9)])
    file = ChangingFile(tmp_path / "rank0.json", before, after)
    output = tmp_path / ("out.json" if write is repair else f"out.{extension}")
    with pytest.raises(TraceFileError, match="changed during reading"):
        write(file, output)
    assert os.listdir(tmp_path) == ["rank0.json"]


@both_ways
def test_events_with_moved_values_are_an_error(tmp_path, write):
    """The numbers stand where they stood, so that only the text around them tells."""
    before = text_of([span(100 + number) for number in range(500)])
    assert '"dur": 1}, {' in before
    file = ChangingFile(tmp_path / "rank0.json", before, before.replace('"dur": 1}, {', '"dur": 1]] {', 1))
    with pytest.raises(TraceFileError, match="changed during reading"):
        write(file, tmp_path / "out.json")
    assert os.listdir(tmp_path) == ["rank0.json"]


@both_ways
def test_a_string_that_has_no_end_any_more_is_an_error(tmp_path, write):
    before = text_of([span(100 + number) for number in range(500)])
    at = before.index('op"', 1000) + 2
    file = ChangingFile(tmp_path / "rank0.json", before, before[:at] + "x" + before[at + 1 :])
    with pytest.raises(TraceFileError, match="changed during reading"):
        write(file, tmp_path / "out.json")
    assert os.listdir(tmp_path) == ["rank0.json"]


@both_ways
def test_fewer_events_than_before_are_an_error(tmp_path, write):
    events = [span(100 + number) for number in range(500)]
    file = ChangingFile(tmp_path / "rank0.json", text_of(events), text_of(events[:-1]))
    with pytest.raises(TraceFileError, match="changed during reading"):
        write(file, tmp_path / "out.json")


def test_an_event_that_ends_where_a_piece_ends_is_no_change(tmp_path, monkeypatch):
    """Python writes its id anew, but reads on first, since more might follow."""
    monkeypatch.setattr(chrome_stream, "_PIECE_BYTES", 1 << 10)
    unusual, others = span(100, ph="b", id="a"), [span(200 + number) for number in range(50)]
    room = text_of([span(0, args={"filled": ""}), unusual]).removesuffix("]}")
    events = [span(0, args={"filled": "x" * ((1 << 10) - len(room))}), unusual, *others]
    file = tmp_path / "rank0.json"
    file.write_text(text_of(events))
    merged = merge_traces(tmp_path / "out.json", file).output
    written = [event for event in json.loads(merged.read_text())["traceEvents"] if event["ph"] != "M"]
    assert [event["name"] for event in written] == ["op"] * 52
    assert [event["ts"] - written[0]["ts"] for event in written[2:]] == [event["ts"] for event in others]
