"""torch: a finished window to a Chrome trace file. What Kineto saved flows in; a valid file flows out.

Lines that are right as they stand are copied under our header. Otherwise the events are read, repaired and written anew
(`repair`).
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from kinetoscope.formats.compression import compressed_by_name
from kinetoscope.torch.trace_text import TraceText
from kinetoscope.writing.atomic_file import atomic_file


def copy_trace(text: TraceText, path: Path, additions: Mapping[str, Any]) -> None:
    """Writes ``path`` with the events of a text that is right, under its header with ``additions``."""
    header = json.dumps(text.header | dict(additions), indent=2).removesuffix("\n}")
    text.lines.save(path, header.encode() + b',\n"traceEvents": [', b"\n]\n}\n")


@contextmanager
def trace_stream(path: Path) -> Iterator[BinaryIO]:
    """A stream that becomes ``path`` when all went well; compressed when its name ends in ``.gz`` or ``.zst``."""
    with atomic_file(path) as stream, compressed_by_name(stream, path) as packed:
        yield packed
