"""Every command refuses a file that is no trace, says in one line what it is, and writes nothing."""

import gzip
import json
from functools import cache

import pytest

from kinetoscope.cli import main

SPAN = {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
TRACE = json.dumps({"baseTimeNanoseconds": 1_790_857_026_000_000_000, "traceEvents": [SPAN]})
PACKED = gzip.compress(TRACE.encode())


@cache
def bomb():
    return gzip.compress(b"[" + b'{"a":' * 9_000_000, 1)


VERBS = {
    "info": ["info", "{file}"],
    "check": ["check", "{file}"],
    "repair": ["check", "{file}", "--repair", "out.json"],
    "merge": ["merge", "-o", "out.json", "{file}"],
    "convert": ["convert", "{file}", "-o", "out.json.gz"],
    "perfetto": ["convert", "{file}", "-o", "out.pftrace"],
    "parquet": ["convert", "{file}", "-o", "out.parquet"],
}


@pytest.fixture(params=VERBS)
def refusal(request, tmp_path, monkeypatch, capsys):
    """The message with which a command refuses a file with this content."""
    monkeypatch.chdir(tmp_path)

    def of(content, name="in.json"):
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        assert main([argument.format(file=name) for argument in VERBS[request.param]]) == 1
        assert [path.name for path in tmp_path.iterdir()] == [name]
        message = capsys.readouterr()
        (line,) = [line for line in (message.out + message.err).splitlines() if "Cannot read the trace" in line]
        return line

    return of


@pytest.mark.parametrize(
    "document",
    [{"name": "package", "version": "1.0"}, {"traceEvents": {"a": 1}}, {"traceEvents": [{"name": "a", "ts": 1}]}],
)
def test_an_object_without_events(refusal, document):
    message = refusal(json.dumps(document))
    assert 'no list "traceEvents"' in message or "no event" in message


@pytest.mark.parametrize(
    "entries", [[{"x": 1}, {"y": 2}], [1, 2, "three"], [{"ph": None, "name": "a"}], [{"ph": "no"}]]
)
def test_a_list_without_events_is_refused(refusal, entries):
    message = refusal(json.dumps(entries))
    assert "no event" in message
    assert "phase" in message or "entries that are not events" in message


@pytest.mark.parametrize("kept", [5, 12])
def test_compressed_file_without_readable_content_is_damaged_and_not_empty(refusal, kept):
    message = refusal(PACKED[:kept] + b"\xff" * (len(PACKED) - kept if kept > 10 else 0), "in.json.gz")
    assert "damaged" in message or "ends too early" in message
    assert "empty" not in message


def test_the_error_says_that_a_file_is_compressed_twice(refusal):
    assert "compressed twice" in refusal(gzip.compress(PACKED), "in.json.gz")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be"])
def test_utf_16_is_named_with_the_way_out(refusal, encoding):
    message = refusal(TRACE.encode(encoding))
    assert "UTF-16" in message
    assert "iconv" in message


@pytest.mark.parametrize("refusal", ["info", "check"], indirect=True)
def test_reading_of_deeply_nested_objects_stops_after_32_mb(refusal):
    assert "no event in its first 32 MB" in refusal(bomb(), "in.json.gz")
