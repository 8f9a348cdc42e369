"""docs/frames.md lists every column of every table, with its type."""

import json
import re
from pathlib import Path

import pytest

import kinetoscope

PAGE = Path(__file__).parents[2] / "docs" / "frames.md"
TABLES = {"events": "E", "spans": "S", "instants": "I", "flows": "F"}


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    path = tmp_path_factory.mktemp("frames") / "trace.json"
    path.write_text(json.dumps([{"ph": "X", "name": "x", "pid": 1, "tid": 1, "ts": 0, "dur": 1}]))
    return kinetoscope.load(path, cache=False)


def rows_below(title):
    """Return the first cells of each row of the table below a title."""
    section = PAGE.read_text(encoding="utf-8").split(f"## {title}\n")[1].split("\n## ")[0]
    return [[cell.strip(" `") for cell in line.split("|")[1:-1]] for line in re.findall(r"^\| `.*\|$", section, re.M)]


def columns_of(table):
    return {name: str(dtype).partition("(")[0] for name, dtype in table.collect_schema().items()}


@pytest.mark.parametrize("name", TABLES)
def test_the_page_lists_the_columns_of_events_and_of_each_kind(trace, name):
    listed = {column: dtype for column, dtype, _, where, _ in rows_below("Events") if TABLES[name] in where}
    found = columns_of(getattr(trace, name))
    if name == "flows":
        assert found.pop("step") == "Categorical"
    assert listed == found


@pytest.mark.parametrize("title", ["Counters", "Tracks", "Metadata"])
def test_the_page_lists_the_columns_of_the_other_tables(trace, title):
    listed = {column: dtype for column, dtype, *_ in rows_below(title)}
    assert listed == columns_of(getattr(trace, title.lower()))


def test_the_page_lists_the_additional_columns_of_nested_spans_and_sets(trace):
    more = {column: dtype for column, dtype, *_ in rows_below("Nested spans")}
    assert columns_of(trace.spans) | more == columns_of(trace.nested())
    of_set = {column: dtype for column, dtype, *_ in rows_below("Several traces")}
    both = kinetoscope.frames.trace_set.TraceSet([trace])
    assert columns_of(trace.events) | of_set == columns_of(both.events)
