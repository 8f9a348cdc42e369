"""The byte layouts of docs/formats.md agree with the code."""

import re
import struct
from pathlib import Path

import pytest

from kinetoscope.formats import record_request
from kinetoscope.pulse import layout
from kinetoscope.spool import chunk, record

PAGE = (Path(__file__).parents[2] / "docs" / "formats.md").read_text(encoding="utf-8")
CODES = {"uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q", "int64": "q"}
SIZES = {
    "field": record.RECORD_BYTES,
    "track mark": record.RECORD_BYTES,
    "chunk header": chunk._CHUNK.size,
    "track header": chunk._TRACK.size,
    "request": record_request.REQUEST_BYTES,
}
"""The third heading of each table with types, and the size of what it describes."""


def rows_of(heading):
    """Return the offset and type of each row of a table."""
    table = re.search(rf"^\| at \| type \| {heading} \|.*\n(?:\|.*\n)*", PAGE, re.M)[0]
    return [(int(at), kind) for at, kind in re.findall(r"^\| (\d+) \| ([\w\[\]]+) \|", table, re.M)]


@pytest.mark.parametrize("heading", SIZES)
def test_the_fields_of_a_layout_follow_each_other_up_to_its_size(heading):
    end = 0
    for at, kind in rows_of(heading):
        assert at == end
        end += int(kind[5:-1]) if kind.startswith("char[") else struct.calcsize(CODES[kind])
    assert end == SIZES[heading]


def test_every_table_with_types_is_tested():
    assert {*re.findall(r"^\| at \| type \| ([\w ]+) \|", PAGE, re.M)} == {*SIZES}


def test_the_parts_of_a_pulse_are_at_the_offsets_of_the_code():
    (table,) = re.findall(r"^\| at \| content \|\n((?:\|.*\n)*)", PAGE, re.M)
    names = [
        "NOW_AT",
        "GAUGES_AT",
        "WATCHED_AT",
        "REQUEST_AT",
        "LOCATION_AT",
        "ABOUT_AT",
        "STEPS_AT",
        "FINE_AT",
        "COARSE_AT",
    ]
    expected = [0, *(getattr(layout, name) for name in names)]
    assert [int(at) for at in re.findall(r"^\| (\d+) \|", table, re.M)] == expected
