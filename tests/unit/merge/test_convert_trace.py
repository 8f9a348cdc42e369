"""merge/convert_trace.py: a trace in another format, with a message for all that is lost."""

import gzip
import json

import pytest

from kinetoscope.errors import SettingsError
from kinetoscope.merge.convert_trace import convert_trace

TEXT = json.dumps([{"ph": "X", "name": "op", "pid": 1, "tid": 1, "ts": n, "dur": 1} for n in range(1000)]).encode()


def test_compressing_and_decompressing_a_trace_keeps_every_byte_and_prints_nothing(tmp_path):
    (tmp_path / "in.json").write_bytes(TEXT)
    assert convert_trace(tmp_path / "in.json", tmp_path / "packed.json.gz") == []
    assert convert_trace(tmp_path / "packed.json.gz", tmp_path / "out.json") == []
    assert (tmp_path / "out.json").read_bytes() == TEXT


def test_truncated_compressed_trace_is_read_up_to_the_cut_with_a_message(tmp_path):
    (tmp_path / "in.json.gz").write_bytes(gzip.compress(TEXT)[:-500])
    (note,) = convert_trace(tmp_path / "in.json.gz", tmp_path / "out.json")
    assert "gzip" in note
    unpacked = (tmp_path / "out.json").read_bytes()
    assert unpacked
    assert TEXT.startswith(unpacked)


@pytest.mark.parametrize("name", ["out.txt", "+.csv", "out.json.bz2", "out"])
def test_an_output_name_without_a_known_format_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.json").write_bytes(TEXT)
    with pytest.raises(SettingsError, match="must end in"):
        convert_trace("in.json", name)
