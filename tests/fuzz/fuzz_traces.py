"""A coverage-guided fuzzer: both scanners read any bytes as a trace. They must agree, and neither crash nor hang.

    make fuzz                                        a minute of it, from a corpus of small traces
    python tests/fuzz/fuzz_traces.py CORPUS ...      as long as you like; arguments are libFuzzer's

The page behind each text is protected, so that reading on is a crash. Failing inputs are written to ``crash-*``; add
them to ``tests/unit/formats/test_chrome_scan.py``.
"""

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1]))

with atheris.instrument_imports(include=["kinetoscope.formats", "kinetoscope.table"]):
    from kinetoscope.formats import chrome_stream
    from scanning import SCANNERS, read_with

from corpus import write_corpus
from guarded import guard_texts

_SMALL_WINDOW_BYTES = 1 << 10  # so that small files need several windows


@atheris.instrument_func
def compare(data: bytes) -> None:
    """Reads ``data`` with both scanners; its first bit chooses the size of the window."""
    chrome_stream._PIECE_BYTES = _SMALL_WINDOW_BYTES if data[:1] >= b"\x80" else 1 << 18
    native, twin = (repr(read_with(make(), data)) for make in SCANNERS.values())
    if native != twin:
        raise AssertionError(f"The scanners disagree:\n{native}\n{twin}")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        raise SystemExit(__doc__)
    write_corpus(Path(sys.argv[1]))
    guard_texts()
    atheris.Setup(sys.argv, compare)
    atheris.Fuzz()
