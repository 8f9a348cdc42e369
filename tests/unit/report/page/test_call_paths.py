"""report: chains of calls, also of calls that are nested very deep."""

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

from kinetoscope.report.page.call_paths import CallPaths
from kinetoscope.report.page.rank_spans import _free_rows
from support.page_data import page_of, read_column, span, write_trace


@st.composite
def calls(draw):
    """Return names, parents and depths of calls, some of them too deep for the columnar path."""
    stems = draw(st.lists(st.integers(0, 400), min_size=1, max_size=3))
    names, parents, depths = [], [], []
    for stem in stems:
        for depth in range(stem):
            names.append(draw(st.integers(0, 1)) if depth % 50 == 0 else 0)
            parents.append(len(parents) - 1 if depth else None)
            depths.append(depth)
    return names, parents, depths


@given(calls())
def test_each_chain_of_calls_is_there_once_however_deep(given_calls):
    names, parents, _ = given_calls
    paths = CallPaths()
    types = {"names": pl.UInt32, "parents": pl.UInt32, "depths": pl.UInt32}
    columns = [pl.Series(values, dtype=dtype) for values, dtype in zip(given_calls, types.values(), strict=True)]
    indices = paths.indices(*columns).to_list()
    chains = []
    for name, parent in zip(names, parents, strict=True):
        chains.append((*(chains[parent] if parent is not None else ()), name))
    assert len(set(zip(chains, indices, strict=True))) == len(set(chains)) == len(set(indices)) == len(paths.names)
    for source_row, parent, name in zip(indices, parents, names, strict=True):
        assert (paths.names[source_row], paths.callers[source_row]) == (
            name,
            0 if parent is None else indices[parent] + 1,
        )


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 30), st.integers(0, 20)), max_size=40))
def test_a_span_is_in_the_first_row_that_is_free(drawn):
    rows = sorted((begin, begin + length, parent) for begin, length, parent in drawn)
    parents = [parent if parent < source_row else None for source_row, (_, _, parent) in enumerate(rows)]
    types = {"track": pl.UInt32, "source_row": pl.UInt32, "parent": pl.UInt32, "ts": pl.Int64, "end": pl.Int64}
    begins, ends = [begin for begin, _, _ in rows], [end for _, end, _ in rows]
    columns = [[0] * len(rows), [*range(len(rows))], parents, begins, ends]
    frame = pl.DataFrame(dict(zip(types, columns, strict=True)), schema=types)
    found, until = [], [0] * 100
    for begin, end, parent in zip(begins, ends, parents, strict=True):
        first = 0 if parent is None else found[parent] + 1
        found.append(next(row for row in range(first, 100) if until[row] <= begin))
        until[found[-1]] = end
    assert _free_rows(frame) == found


def test_a_page_of_a_hundred_thousand_spans_one_inside_the_other_is_written(tmp_path):
    """The time limit of a test was too short for it when time grew with the square of the depth."""
    num = 100_000
    events = [span("n", source_row, 4 * num - 2 * source_row) for source_row in range(num)]
    page = page_of(write_trace(tmp_path / "rank0.json", events))
    assert sum(len(track.row_begins) - 1 for track in page.timeline.tracks) >= num
    (graph,) = page.flame_graphs
    assert len(read_column(graph.names)) <= num


def test_a_page_of_thousands_of_spans_that_overlap_is_written(tmp_path):
    num = 20_000
    page = page_of(write_trace(tmp_path / "rank0.json", [span("n", source_row, 2 * num) for source_row in range(num)]))
    assert page.timeline.tracks[-1].row_begins == [*range(num + 1)]
