"""Reads the columns of a page, and the data of a page's file."""

import base64
import gzip
import json
import re
from itertools import accumulate

from kinetoscope.pages.page_data import Column


def read_column(column: Column) -> list[int]:
    """The numbers of a column."""
    length = len(column)
    planes = [column.data[place * length : (place + 1) * length] for place in range(column.num_bytes)]
    written = [sum(byte << 8 * place for place, byte in enumerate(bytes_of)) for bytes_of in zip(*planes, strict=True)]
    if not column.is_delta:
        return written
    return list(accumulate(-(number + 1) // 2 if number % 2 else number // 2 for number in written))


def page_text(html: str) -> dict:
    """What the page in a file shows, without its columns."""
    found = re.search(r'id="page-data"[^>]*>([^<]*)<', html)
    content = gzip.decompress(base64.b64decode(found[1]))
    length = int.from_bytes(content[:4], "little")
    return json.loads(content[4 : 4 + length])
