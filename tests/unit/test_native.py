"""The module in C as a whole: whatever Python does with its objects, it gets an answer or an exception, no crash."""

from pathlib import Path

import pytest

_native = pytest.importorskip("kinetoscope._native", reason="the native module was not built")

SOURCES = Path(__file__).parents[2] / "src" / "native"
SPAN = b'{"ph":"X","name":"%d","cat":"a","pid":1,"tid":2,"ts":%d,"dur":1,"args":{}}'


def events(first: int, count: int) -> bytes:
    return b",".join(SPAN % (number, 10 * number) for number in range(first, first + count))


def rewriting(num_events: int) -> "_native.TraceText":
    """A text that has been looked at, and is to be written as it was."""
    text = _native.TraceText(True, 1000, b"", False, False)
    piece = events(0, num_events)
    assert text.survey(piece, 0, len(piece), True, 0)[0] == len(piece)
    text.finish()
    text.plan([(b"1", b"2", True, -(2**63), 2**63 - 1, 1, 2, 0)], 0, 0, True, False, False, 0, (0, 0, 1))
    return text


def test_lines_of_a_trace_stay_as_they_are_while_more_of_it_is_written_and_when_it_is_gone():
    text, views = rewriting(1000), []
    for first in range(0, 1000, 100):
        piece = events(first, 100)
        position, _, lines = text.rewrite(piece, 0, len(piece), True, 0)
        assert position == len(piece)
        views.append((lines, bytes(lines)))
    del text, lines
    for first, (lines, at_first) in enumerate(views):
        assert bytes(lines) == at_first
        assert b'"name":"%d"' % (100 * first) in at_first


def test_lines_that_nobody_looks_at_any_more_make_room_for_the_next_ones():
    text, piece = rewriting(1000), events(0, 1000)
    addresses = set()
    for _ in range(5):
        lines = text.rewrite(piece, 0, len(piece), True, 0)[2]
        addresses.add(id(lines.obj))
        del lines
    assert len(addresses) == 1, "each piece is written to a buffer of its own"


def test_the_last_packets_of_a_trace_outlive_it():
    text = rewriting(10)
    lines = text.finish_writing()
    del text
    assert bytes(lines) == b""


def test_lines_of_kinetos_text_outlive_the_next_ones_and_what_made_them(tmp_path):
    (tmp_path / "end").write_bytes(b"]}")
    line = b'{"ph":"X","name":"a","pid":1,"tid":1,"ts":7.125,"dur":1\n  },'
    found = _native.KinetoLines(-1000, [], (), line * 100)
    with open(tmp_path / "end", "rb", buffering=0) as end:
        stop, lines = found.read(end.fileno(), bytearray(b"\1"))
        at_first = bytes(lines)
        found.read(end.fileno(), bytearray(b"\1"))
    del found
    assert (stop, at_first.count(b"}")) == (2, 100)
    assert bytes(lines) == at_first


@pytest.mark.parametrize(
    ("word", "instead"),
    [
        ("volatile", "a word that threads or processes share is atomic, with acquire and release"),
        ("PyMemoryView_FromMemory", "a view needs an owner (owned_bytes.h)"),
    ],
)
def test_no_source_has(word, instead):
    found = [path.name for path in SOURCES.rglob("*.[ch]*") if word in path.read_text()]
    assert not found, f"{', '.join(found)}: {instead}"
