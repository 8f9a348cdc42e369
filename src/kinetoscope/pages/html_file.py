"""Report page as one HTML file: the page that ``web/`` builds, with its data."""

import base64
import gzip
import html
from importlib.resources import files
from typing import Any

import msgspec

from kinetoscope.pages.page_data import Column, PageData

_COMPRESSION_LEVEL = 6


def render_page(data: PageData) -> str:
    """Return the page as HTML, which loads neither other files nor anything from a network."""
    shell = files("kinetoscope.pages").joinpath("page.html").read_text(encoding="utf-8")
    head, tail = shell.split("{{data}}")
    head = head.replace("{{version}}", html.escape(data.version)).replace("{{title}}", html.escape(data.title))
    return "".join(
        (head, base64.b64encode(gzip.compress(encode_page(data), _COMPRESSION_LEVEL, mtime=0)).decode(), tail)
    )


def encode_page(data: PageData) -> bytes:
    """Return the data as bytes: a length, JSON, and the bytes of all columns.

    The length of the JSON has 4 bytes, little-endian. In the JSON, a column is the location of its bytes.
    """
    columns: list[bytes] = []
    offset = 0

    def encode_column(column: Any) -> Any:
        nonlocal offset
        if not isinstance(column, Column):
            raise NotImplementedError(f"A page cannot show a {type(column).__name__}")
        columns.append(column.data)
        encoded = {
            "offset": offset,
            "length": len(column),
            "num_bytes": column.num_bytes,
            "is_delta": column.is_delta,
        }
        offset += len(column.data)
        return encoded

    text = msgspec.json.encode(data, enc_hook=encode_column)
    return b"".join((len(text).to_bytes(4, "little"), text, *columns))
