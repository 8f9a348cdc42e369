"""A coverage-guided fuzzer: checks, merges and repairs any bytes as a trace, and compares with the reference.

    make fuzz                                        a minute of it, from a corpus of small traces
    python tests/fuzz/fuzz_rewriting.py CORPUS ...   as long as you like; arguments are libFuzzer's

The page behind each text is protected, so that reading on is a crash. Text behind ``CHANGE`` (`corpus`) is what the
second reading of the file finds. An error must be one that a user understands. Output must be strict JSON, the same
from both, and a check must not find in it what a merge or a repair promises to remove. Failing inputs are written to
``crash-*``; add them to ``tests/unit/merge/test_check.py``.
"""

import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import atheris
import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

with atheris.instrument_imports(include=["kinetoscope.formats", "kinetoscope.merge"]):
    from kinetoscope.errors import MergeError, TraceFileError
    from kinetoscope.formats import chrome_stream
    from kinetoscope.merge.check import check_trace, repair_trace
    from kinetoscope.merge.merge_traces import merge_traces

from corpus import CHANGE, write_corpus
from guarded import guard_texts

from reference.rewriting import use_reference
from support.merged_traces import meaning

_SMALL_WINDOW_BYTES = 1 << 10  # so that small files need several windows
_TMPFS = Path("/dev/shm")
_MENDED_BY_MERGE = {"syntax", "nesting"}
_MENDED_BY_REPAIR = {"syntax", "events", "nesting", "tracks", "times", "flows"}


@atheris.instrument_func
def go_through(data: bytes) -> None:
    """Check, merge and repair ``data`` as a file; its first bit chooses the size of the window."""
    chrome_stream._PIECE_BYTES = _SMALL_WINDOW_BYTES if data[:1] >= b"\x80" else 1 << 18
    source, target = _FOLDER / "rank0.json", _FOLDER / "out.json"
    before, is_changing, after = data.partition(CHANGE)
    if is_changing:
        _write_while_it_changes(source, target, before, after)
        return
    source.write_bytes(data)
    repaired = [_repaired(source, target), _with_reference(_repaired, source, target)]
    if repaired[0] != repaired[1]:
        raise AssertionError(f"The reference repairs differently:\n{repaired[0]}\n{repaired[1]}")
    if repaired[0] is None:
        return
    merged = [_merged(source, target), _with_reference(_merged, source, target)]
    if merged[0] != merged[1]:
        raise AssertionError(f"The reference merges differently:\n{merged[0]}\n{merged[1]}")


def _write_while_it_changes(source: Path, target: Path, before: bytes, after: bytes) -> None:
    """Merge and repair a file that changes between the two readings, with equal size and time. The output must be JSON;
    its content is undefined."""
    size = max(len(before), len(after))
    before, after = before.ljust(size), after.ljust(size)

    def on_progress(num_done: int, num_all: int) -> None:
        if 2 * num_done >= num_all and source.read_bytes() == before:
            state = source.stat()
            source.write_bytes(after)
            os.utime(source, ns=(state.st_atime_ns, state.st_mtime_ns))

    for write in (merge_traces, lambda target, source, on_progress: repair_trace(source, target, on_progress)):
        source.write_bytes(before)
        with contextlib.suppress(MergeError, TraceFileError):
            write(target, source, on_progress=on_progress)
            json.loads(target.read_bytes(), parse_constant=_refuse)


def _with_reference(call: Callable[[Path, Path], Any], source: Path, target: Path) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        use_reference(patch)
        return call(source, target)


def _merged(source: Path, target: Path) -> Any:
    """Return the meaning of the merged trace; None if it has no clock."""
    try:
        merge_traces(target, source)
    except MergeError:
        return None
    return meaning(_require_whole(target, _MENDED_BY_MERGE))


def _repaired(source: Path, target: Path) -> Any:
    """Return the repaired trace; None if nothing is left of it."""
    check = check_trace(source)
    try:
        repair = repair_trace(source, target)
    except TraceFileError:
        if check.num_events:
            raise
        return None
    if repair.check != check:
        raise AssertionError(f"A repair sees something else than a check:\n{repair.check}\n{check}")
    return _require_whole(target, _MENDED_BY_REPAIR)


def _require_whole(target: Path, repaired_kinds: set[str]) -> Any:
    findings = [finding for finding in check_trace(target).findings if finding.kind in repaired_kinds]
    if findings:
        raise AssertionError(f"What was written is not as it should be: {findings}")
    return json.loads(target.read_bytes(), parse_constant=_refuse)


def _refuse(word: str) -> None:
    raise AssertionError(f"What was written holds {word}, which is no JSON.")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        raise SystemExit(__doc__)
    with tempfile.TemporaryDirectory(dir=_TMPFS if _TMPFS.is_dir() else None) as name:
        _FOLDER = Path(name)
        write_corpus(Path(sys.argv[1]))
        guard_texts()
        atheris.Setup(sys.argv, go_through)
        atheris.Fuzz()
