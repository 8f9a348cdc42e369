"""The example in CONTRIBUTING.md: its test passes with its source, and its paths exist."""

import re
import sys
import types
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_the_test_of_the_example_passes_with_its_source(monkeypatch):
    test, source = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    module = types.ModuleType("kinetoscope.sources.queue_profiler")
    exec(source, vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names = {}
    exec(test, names)
    names["test_the_length_of_the_queue_is_counted_at_every_batch"]()


def test_the_page_fits_100_lines_and_its_paths_exist():
    assert len(PAGE.splitlines()) <= 100
    outside_code = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
    paths = re.findall(r"`((?:src|docs|tests|benchmarks|web|changelog\.d|\.github)/?[\w./-]*)`", outside_code)
    missing = [path for path in paths if not (ROOT / path).exists()]
    assert missing == ["tests/unit/sources/test_queue_profiler.py", "src/kinetoscope/sources/queue_profiler.py"]
