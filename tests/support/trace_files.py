"""Shared by tests: the content of trace files, also of compressed ones."""

import json
import os
from typing import Any

from kinetoscope.formats.compression import read_unpacked


def trace_text(path: str | os.PathLike[str]) -> str:
    return read_unpacked(path)[0].decode()


def trace_json(path: str | os.PathLike[str]) -> Any:
    return json.loads(trace_text(path))
