"""frames/convert_parquet.py: to Parquet and back, no event loses anything."""

import json

import polars as pl
import pytest

import kinetoscope
from kinetoscope.errors import TraceFileError
from kinetoscope.frames.convert_parquet import convert_parquet

EVENTS = [
    {"ph": "M", "name": "process_name", "pid": 7, "tid": 0, "args": {"name": "pythön"}},
    {
        "ph": "X",
        "name": "a",
        "cat": "c",
        "pid": "p",
        "tid": 8,
        "ts": 1.5,
        "dur": 0.001,
        "args": {"x": [1, {"y": None}]},
    },
    {"ph": "B", "name": "b", "pid": 7, "tid": 8, "ts": 2, "tts": 5},
    {"ph": "E", "name": "b", "pid": 7, "tid": 8, "ts": 3},
    {"ph": "s", "name": "f", "cat": "ac2g", "id": 9, "pid": 7, "tid": 8, "ts": 2},
    {"ph": "f", "name": "f", "cat": "ac2g", "id": "0x9", "pid": 7, "tid": 8, "ts": 5, "bp": "e"},
    {"ph": "C", "name": "cpu", "pid": 7, "tid": 8, "ts": 3, "args": {"user": 1.5}},
]


def plain(row):
    return row | {name: json.loads(row[name] or "null") for name in ("args", "fields")}


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_converting_from_parquet_loses_nothing(tmp_path, suffix):
    source, packed, back = tmp_path / "t.json", tmp_path / "t.parquet", tmp_path / f"back{suffix}"
    document = {"schemaVersion": 1, "displayTimeUnit": "ms", "baseTimeNanoseconds": 10**18, "traceEvents": EVENTS}
    source.write_text(json.dumps(document))
    assert convert_parquet(source, packed) == []
    assert convert_parquet(packed, back) == []
    before, after = (kinetoscope.load(path, cache=False).events.collect().to_dicts() for path in (source, back))
    assert list(map(plain, after)) == list(map(plain, before))
    if suffix == ".json":
        assert json.loads(back.read_text()) == document


def test_pids_and_tids_that_are_text_come_back_as_text(tmp_path):
    """Old Kineto writes a span's tid as text and its flow's tid as a number: one track, and each form is kept."""
    span = {"ph": "X", "name": "a", "pid": 7, "tid": "8", "ts": 1, "dur": 2}
    events = [
        span,
        span | {"tid": 8, "tts": 5},
        span | {"pid": "7"},
        span | {"pid": "7", "tid": 8},
        span | {"tid": "x"},
    ]
    (tmp_path / "t.json").write_text(json.dumps(events))
    convert_parquet(tmp_path / "t.json", tmp_path / "t.parquet")
    convert_parquet(tmp_path / "t.parquet", tmp_path / "back.json")
    assert json.loads((tmp_path / "back.json").read_text())["traceEvents"] == events
    assert len(kinetoscope.load(tmp_path / "t.parquet").tracks.collect()) == 2


def test_a_foreign_parquet_file_is_refused_with_the_way_to_make_one(tmp_path):
    pl.DataFrame({"a": [1]}).write_parquet(tmp_path / "x.parquet")
    with pytest.raises(TraceFileError, match=r"not a trace.*kinetoscope convert"):
        convert_parquet(tmp_path / "x.parquet", tmp_path / "x.json")
    assert not (tmp_path / "x.json").exists()
