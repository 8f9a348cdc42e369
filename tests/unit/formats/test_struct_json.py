"""Our own small files, which may hold any path."""

import msgspec
import pytest

from kinetoscope.formats.struct_json import decode_struct, encode_struct


class Place(msgspec.Struct, frozen=True):
    path: str
    number: float = 0.0


@pytest.mark.parametrize("path", ["plain", "caf\u00e9", "caf\udce9", 'quotes " and \\udce9', "\U0001f600 \udc80"])
def test_every_path_comes_back_as_it_was(path):
    text = encode_struct(Place(path))
    assert b"\n" not in text
    assert decode_struct(text, Place) == Place(path)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b'{"path": "\\udce9', b'{"path": 3, "x": "\\udce9"}', b'{"path": "\\udce9", "number": NaN}', b"\xff"],
)
def test_an_object_that_is_no_such_struct_is_refused(text):
    with pytest.raises((msgspec.MsgspecError, UnicodeDecodeError)):
        decode_struct(text, Place)
