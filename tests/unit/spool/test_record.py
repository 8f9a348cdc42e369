"""Records as bytes and as columns."""

import pytest

from kinetoscope.spool import record
from kinetoscope.spool.record import Flag, Kind, Record, pack_records, unpack_records


def test_columns_have_the_fields_of_all_records_in_order():
    records = [
        Record(-5, 2**62, 2**32 - 1, 7, 65535, Kind.SPAN, Flag.CUT, 0),
        Record(9, 0.5, 1, 2, 3, Kind.COUNTER, Flag.FLOAT, 2**31),
        Record(10, 0, 4, 5, 6, Kind.INSTANT, Flag.NONE, 1),
    ]
    columns = record.record_columns(pack_records(records))
    assert [column.tolist() for column in columns if column is not columns.end] == [
        [getattr(row, name) for row in records] for name in columns._fields if name != "end"
    ]
    assert columns.end.tolist()[::2] == [2**62, 0]
    assert columns.end.cast("B").cast("d")[1] == 0.5
    assert all(len(column) == 0 for column in record.record_columns(b""))


@pytest.mark.parametrize("value", [2**63 - 1, -(2**63) + 1, 2**63, -(2**63), 2**200])
def test_counter_is_exact_if_it_fits_64_bits_and_a_float_otherwise(value):
    (record,) = unpack_records(pack_records([Record(1, value, 0, 0, 0, Kind.COUNTER, Flag.NONE)]))
    assert record.end == value
    assert type(record.end) is (int if abs(value) < 2**63 else float)
