"""formats/parquet.py: what a Parquet file unpacks to is known before it is unpacked."""

import random

import polars as pl
import pytest

from kinetoscope.errors import TraceFileError
from kinetoscope.formats import parquet


def require_reasonable_size(path):
    with path.open("rb") as file:
        parquet.require_reasonable_size(file, str(path))


def test_real_columns_are_small_enough_also_such_as_hold_nearly_nothing(tmp_path):
    times = pl.int_range(0, 500_000, dtype=pl.Int64, eager=True) * 1000
    for frame in (pl.DataFrame({"ts": times}), pl.DataFrame({"name": ["a", None, "b"] * 100_000}), pl.DataFrame()):
        frame.write_parquet(tmp_path / "a.parquet", row_group_size=10_000)
        require_reasonable_size(tmp_path / "a.parquet")


@pytest.mark.parametrize("compression", ["zstd", "gzip", "snappy", "uncompressed"])
def test_a_file_of_equal_values_is_refused(tmp_path, compression):
    path = tmp_path / "a.parquet"
    pl.DataFrame({"ts": pl.repeat(7, 60_000_000, dtype=pl.UInt8, eager=True)}).write_parquet(
        path, compression=compression
    )
    with pytest.raises(TraceFileError, match=r"a[.]parquet: its .*B would take over 4.* MB of memory"):
        require_reasonable_size(path)


def test_a_file_with_a_few_texts_of_zeros_is_refused(tmp_path):
    path = tmp_path / "a.parquet"
    frame = pl.DataFrame({"args": [bytes([number]) * 20_000_000 for number in range(16)]})
    frame.write_parquet(path, statistics=False)
    assert path.stat().st_size < 1_000_000
    with pytest.raises(TraceFileError, match="would take over 3"):
        require_reasonable_size(path)


def test_invalid_parquet_file_is_reported(tmp_path):
    for content in (b"", b"PAR1", b"PAR1" * 4, b"PAR1" + b"\xff" * 100 + b"PAR1", b'{"traceEvents": []}'):
        (tmp_path / "a.parquet").write_bytes(content)
        with pytest.raises(TraceFileError, match="is no Parquet file, or is damaged"):
            require_reasonable_size(tmp_path / "a.parquet")


def test_any_damaged_file_is_reported_or_read(tmp_path):
    path, chance = tmp_path / "a.parquet", random.Random(1)
    pl.DataFrame({"ts": list(range(1000)), "name": ["a", "b"] * 500}).write_parquet(path, row_group_size=100)
    whole = path.read_bytes()
    num_reported = 0
    for _ in range(2000):
        content = bytearray(whole)
        for _ in range(chance.choice([1, 1, 5])):
            content[chance.randrange(len(content))] = chance.randrange(256)
        path.write_bytes(content[: chance.choice([len(content), chance.randrange(len(content))])])
        try:
            require_reasonable_size(path)
        except TraceFileError:
            num_reported += 1
    assert 500 < num_reported < 2000
