"""frames/trace_parquet.py: a Parquet file from a stranger is a trace, or a sentence says what is wrong with it."""

import pickle
import shutil

import polars as pl
import pytest

import kinetoscope
from kinetoscope.errors import TraceFileError
from kinetoscope.frames.load import read_trace
from kinetoscope.frames.trace_parquet import write_parquet
from support.fork_server import run_program
from trainsim import Settings, simulate

NEVER_EMPTY = ("kind", "phase", "name", "track")


@pytest.fixture(scope="module")
def parquet(tmp_path_factory):
    """One rank of three steps."""
    folder = tmp_path_factory.mktemp("recorded")
    simulate(Settings(num_ranks=1, num_steps=3)).write(folder)
    write_parquet(read_trace(str(next(folder.glob("*.json")))), folder / "rank0.parquet")
    return folder / "rank0.parquet"


def changed(parquet, target, column, value):
    """Return a copy of the file in which every second row has this value in a column."""
    frame = pl.read_parquet(parquet)
    values = pl.when(pl.int_range(pl.len()) % 2 == 1).then(pl.lit(value, dtype=frame.schema[column]))
    metadata = {"kinetoscope": pl.read_parquet_metadata(parquet)["kinetoscope"]}
    frame.with_columns(values.otherwise(pl.col(column)).alias(column)).write_parquet(target, metadata=metadata)
    return target


@pytest.mark.parametrize("column", NEVER_EMPTY)
def test_a_column_that_is_never_empty_must_not_have_nulls(parquet, tmp_path, column):
    path = changed(parquet, tmp_path / "a.parquet", column, None)
    with pytest.raises(TraceFileError, match=rf"a[.]parquet: .* rows have nothing in the column {column}[.]"):
        kinetoscope.load(path)


def test_nulls_in_any_other_column_do_no_harm(parquet, tmp_path):
    columns = [name for name in pl.read_parquet_schema(parquet) if name not in NEVER_EMPTY]
    assert len(columns) > 20
    for column in columns:
        path = changed(parquet, tmp_path / "a.parquet", column, None)
        assert kinetoscope.analyze(path, cache=False).run["ranks"] == [0]


@pytest.mark.parametrize("column", ["ts", "dur"])
@pytest.mark.parametrize("value", [2**63 - 1, -(2**63)])
def test_timestamp_out_of_range_is_reported(parquet, tmp_path, column, value):
    path = changed(parquet, tmp_path / "a.parquet", column, value)
    with pytest.raises(TraceFileError, match=rf"have a number in the column {column} that is out of its range"):
        kinetoscope.load(path)


def test_numbers_at_the_limits_do_no_harm_in_any_other_column(parquet, tmp_path):
    for column, dtype in pl.read_parquet_schema(parquet).items():
        if dtype == pl.Int64 and column not in ("ts", "dur"):
            for value in (2**63 - 1, -(2**63)):
                kinetoscope.analyze(changed(parquet, tmp_path / "a.parquet", column, value), cache=False)


def test_track_without_a_name_is_reported(parquet, tmp_path):
    path = changed(parquet, tmp_path / "a.parquet", "track", 2**32 - 1)
    with pytest.raises(TraceFileError, match=r"there is a track 4,294,967,295, but only \d+ tracks are named"):
        kinetoscope.load(path)


def test_file_with_a_thousandfold_expansion_is_refused_before_unpacking(parquet, tmp_path):
    frame, path = pl.read_parquet(parquet), tmp_path / "a.parquet"
    first = frame.filter(pl.col("kind") == "span").head(1)
    many = first.select(pl.all().repeat_by(1_500_000).explode())
    many.write_parquet(path, metadata={"kinetoscope": pl.read_parquet_metadata(parquet)["kinetoscope"]})
    assert path.stat().st_size < 1_000_000
    with pytest.raises(TraceFileError, match="of memory, more than 250 times as much, which no trace does"):
        kinetoscope.load(path)


def test_file_that_replaces_a_checked_one_is_not_read(parquet, tmp_path):
    path = shutil.copy(parquet, tmp_path / "a.parquet")
    trace = kinetoscope.load(path)
    spans = trace.spans.collect()
    changed(parquet, tmp_path / "b.parquet", "name", "of a stranger").replace(path)
    assert trace.spans.collect().equals(spans)
    assert "of a stranger" in kinetoscope.load(path).spans.collect()["name"].to_list()


def test_a_trace_in_parquet_can_be_sent_to_another_process(parquet, tmp_path):
    path = shutil.copy(parquet, tmp_path / "a.parquet")
    trace = kinetoscope.load(path)
    sent = pickle.dumps(trace)
    path.unlink()
    assert pickle.loads(sent).spans.collect().equals(trace.spans.collect())


MANY = """
import resource, sys
import kinetoscope
resource.setrlimit(resource.RLIMIT_NOFILE, (64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
print(sum(trace.spans.collect().height for trace in kinetoscope.load(sys.argv[1])))
"""


def test_more_files_are_read_than_a_process_may_have_open_at_first(parquet, tmp_path):
    for rank in range(100):
        (tmp_path / f"rank{rank}.parquet").hardlink_to(parquet)
    done = run_program(MANY, tmp_path)
    assert done.stdout == f"{100 * kinetoscope.load(parquet).spans.collect().height}\n", done.stderr
