"""analysis/windows/schemas.py: frames have the columns of their schemas, and analyses read no others."""

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

import kinetoscope
from kinetoscope.analysis.windows import schemas
from kinetoscope.analysis.windows.window_reader import read_recorded_windows
from kinetoscope.frames.events import event_schema
from trainsim import Settings, simulate

ANALYSIS = Path(kinetoscope.__file__).parent / "analysis"
SUBJECTS = ("windows", "gpu", "cpu", "memory", "steps", "replay")
"""Packages in which a string in brackets is a column, not a key of a dict."""

DECLARED = {
    *(name for schema in vars(schemas).values() if isinstance(schema, pl.Schema) for name in schema),
    *event_schema(),
    *("len", "excess_right"),  # polars names these itself
    *("thread", "is_operator"),  # of a trace's tracks; a series of a window
    *("in_run", "occurs"),  # of edges of a faulty run; of lists in sums of calls
}
KEYS = {"forward", "cpu_optimizer", "steps", "holder", "tensors", "graphs", "begin_node", "launch_ns", "stream_ns"}
"""Keys of dicts in those packages, and columns whose names are put together."""


def strings_in(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, (ast.Tuple, ast.List)):
        for element in node.elts:
            yield from strings_in(element)


def columns_read(tree: ast.AST, *, with_brackets: bool) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "col":
            yield from ((name, node.lineno) for argument in node.args for name in strings_in(argument))
        elif with_brackets and isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            yield from ((name, node.lineno) for name in strings_in(node.slice))


def columns_made(tree: ast.AST) -> Iterator[str]:
    """The names that a file gives to columns itself: of arguments, aliases, series, constants, fields and dicts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from (keyword.arg for keyword in node.keywords if keyword.arg)
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ("alias", "Series", "with_row_index", "constant_column", "add_constant_column"):
                yield from (name for argument in node.args for name in strings_in(argument))
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            yield from strings_in(node.slice)
        elif isinstance(node, ast.ClassDef):
            yield from (getattr(field.target, "id", "") for field in node.body if isinstance(field, ast.AnnAssign))
        elif isinstance(node, ast.Dict):
            yield from (name for key in node.keys if key is not None for name in strings_in(key))
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            yield from strings_in(node.value)


def misspelt(source: str, *, with_brackets: bool) -> list[tuple[str, int]]:
    tree = ast.parse(source)
    known = DECLARED | KEYS | {*columns_made(tree)}
    return [(name, line) for name, line in columns_read(tree, with_brackets=with_brackets) if name not in known]


def test_analyses_read_only_columns_that_a_schema_declares_or_that_they_make():
    found = {}
    for path in ANALYSIS.rglob("*.py"):
        subject = path.relative_to(ANALYSIS).parts[0]
        if names := misspelt(path.read_text(encoding="utf-8"), with_brackets=subject in SUBJECTS):
            found[str(path.relative_to(ANALYSIS))] = names
    assert found == {}


@pytest.mark.parametrize("code", ['frame.filter(pl.col("beign") > 0)', 'frame["beign"]', 'frame[["end", "beign"]]'])
def test_a_misspelt_column_is_found(code):
    assert misspelt(code, with_brackets=True) == [("beign", 1)]
    assert misspelt(f"frame = frame.rename(beign=1)\n{code}", with_brackets=True) == []


@pytest.fixture(scope="module")
def window(tmp_path_factory):
    (path,) = simulate(Settings(num_ranks=1, num_steps=4)).write(tmp_path_factory.mktemp("run"))
    return read_recorded_windows(kinetoscope.load(path))[0]


def test_a_window_is_made_of_frames_with_their_schemas_only(window):
    with pytest.raises(TypeError, match=r"^Steps: unknown columns.*missing columns: \['is_batch'\]\.$"):
        replace(window, steps=window.steps.drop("is_batch"))
    with pytest.raises(TypeError, match=r"^Spans of threads: .*'begin': Float64"):
        replace(window, cpu_spans=window.cpu_spans.with_columns(pl.col("begin").cast(pl.Float64)))


def test_selections_of_a_window_have_their_schemas(window):
    instants = window.instants
    schemas.require(window.cpu.operators, schemas.OPERATORS, "operators")
    schemas.require(instants.allocations, schemas.ALLOCATIONS, "allocations")
    schemas.require(instants.of_sources, schemas.SOURCE_INSTANTS, "instants of sources")
    schemas.require(instants.counters, schemas.COUNTERS, "counters")
