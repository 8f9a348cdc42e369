"""pages: one HTML file with everything in it: the page that ``web/`` builds, and the data that it shows."""

import base64
import gzip
import html
from importlib.resources import files
from typing import Any

import msgspec

from kinetoscope.pages.page_data import Column, PageData

_COMPRESSION_LEVEL = 6


def render_page(data: PageData) -> str:
    """The page as HTML. It asks for nothing: neither a network nor another file."""
    shell = files("kinetoscope.pages").joinpath("page.html").read_text(encoding="utf-8")
    head, tail = shell.split("{{data}}")
    head = head.replace("{{version}}", html.escape(data.version)).replace("{{title}}", html.escape(data.title))
    return "".join(
        (head, base64.b64encode(gzip.compress(encode_page(data), _COMPRESSION_LEVEL, mtime=0)).decode(), tail)
    )


def encode_page(data: PageData) -> bytes:
    """The data as bytes: the length of what follows as text, 4 bytes, the lowest first; that text, JSON, in which a
    column is where its bytes are; then the bytes of all columns."""
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
