"""A coverage-guided fuzzer: the scanner and its reference must agree on any bytes, and not crash or hang.

    make fuzz                                        a minute of it, from a corpus of small traces
    python tests/fuzz/fuzz_traces.py CORPUS ...      as long as you like; arguments are libFuzzer's

The page behind each text is protected, so that reading on is a crash. Failing inputs are written to ``crash-*``; add
them to ``tests/unit/formats/test_chrome_scan.py``.
"""

import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[1]))

with atheris.instrument_imports(include=["kinetoscope.formats", "kinetoscope.frames"]):
    from kinetoscope.formats import chrome_stream
    from kinetoscope.formats.chrome_scan import new_scanner
    from reference.scanning import ReferenceScanner
    from support.scanner_output import read_with

from corpus import write_corpus
from guarded import guard_texts

_SMALL_WINDOW_BYTES = 1 << 10  # so that small files need several windows


@atheris.instrument_func
def compare(data: bytes) -> None:
    """Read ``data`` with both; its first bit chooses the size of the window."""
    chrome_stream._PIECE_BYTES = _SMALL_WINDOW_BYTES if data[:1] >= b"\x80" else 1 << 18
    native, expected = (repr(read_with(scanner, data)) for scanner in (new_scanner(), ReferenceScanner()))
    if native != expected:
        raise AssertionError(f"The scanner disagrees with its reference:\n{native}\n{expected}")


if __name__ == "__main__":
    if len(sys.argv) == 1:
        raise SystemExit(__doc__)
    write_corpus(Path(sys.argv[1]))
    guard_texts()
    atheris.Setup(sys.argv, compare)
    atheris.Fuzz()
