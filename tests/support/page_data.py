"""Builds pages of traces, and reads their columns and the data in their files."""

import base64
import gzip
import json
import re
from itertools import accumulate

from kinetoscope.analysis.analyze import analyze_sources
from kinetoscope.analysis.summaries import Selection
from kinetoscope.formats.anonymizer import Anonymizer
from kinetoscope.frames.load import load_one
from kinetoscope.pages.page_data import Column, PageData
from kinetoscope.report.page.build import RecordedWindows, build_page
from kinetoscope.report.page.rank_traces import RankTraces


def read_column(column: Column) -> list[int]:
    """Return the numbers of a column."""
    length = len(column)
    planes = [column.data[index * length : (index + 1) * length] for index in range(column.num_bytes)]
    written = [sum(byte << 8 * index for index, byte in enumerate(bytes_of)) for bytes_of in zip(*planes, strict=True)]
    if not column.is_delta:
        return written
    return list(accumulate(-(number + 1) // 2 if number % 2 else number // 2 for number in written))


def page_bytes(html: str) -> bytes:
    """Return the decoded content of the page in a file."""
    found = re.search(r'id="page-data"[^>]*>([^<]*)<', html)
    return gzip.decompress(base64.b64decode(found[1]))


def page_text(html: str) -> dict:
    """Return the content of the page in a file without its columns."""
    content = page_bytes(html)
    length = int.from_bytes(content[:4], "little")
    return json.loads(content[4 : 4 + length])


def page_of(*paths, redact: bool = False, **settings) -> PageData:
    """Return the page of some traces."""
    sources = [str(path) for path in paths]
    anonymizer = Anonymizer() if redact else None
    if anonymizer is not None:
        sources = [load_one(name, cache=False).anonymized(anonymizer) for name in sources]
    report = analyze_sources(sources, Selection(), cache=False, anonymizer=anonymizer)
    recorded = RecordedWindows(windows=RankTraces(report, sources, cache=False), **settings)
    return build_page(report, "1", recorded=recorded)


def write_trace(path, events, **header):
    """Return a trace of one rank."""
    path.write_text(json.dumps({"traceEvents": events, **header}))
    return path


def span(name, ts, dur, tid=1, category="cpu_op", **arguments):
    """Return a span of a trace, in microseconds."""
    return {"ph": "X", "name": name, "cat": category, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": arguments}
