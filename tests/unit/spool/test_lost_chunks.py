"""Sentences on the records of a killed process that are detectably missing."""

import pytest

from kinetoscope.spool.lost_chunks import ChunkSummary, describe_losses
from kinetoscope.spool.window_log import LoggedWindow


def chunk(sequence, window=1, threads=(1, 1), num_records=10):
    """Return a chunk with a capacity of 10 records, by its first and last thread."""
    return ChunkSummary(sequence, window, *threads, num_records, 10)


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        pytest.param([], [], id="nothing was recorded"),
        pytest.param([chunk(3), chunk(1), chunk(2)], [], id="complete"),
        pytest.param([chunk(3)], ["Window 1: 2 files with records missing."], id="no window was saved before"),
        pytest.param([chunk(3, window=2)], [], id="the chunks before belong to a saved window"),
        pytest.param([chunk(1), chunk(3)], ["Window 1: 1 file with records missing."], id="between two of a window"),
        pytest.param([chunk(1), chunk(4, window=2)], ["Window 1: 2 files with records missing."], id="before the next"),
        pytest.param([chunk(1), chunk(9, window=3)], [], id="a window in between was saved"),
        pytest.param(
            [chunk(2, window=2), chunk(4, window=2)], ["Window 2: 1 file with records missing."], id="a later window"
        ),
        pytest.param(
            [chunk(1, num_records=7), chunk(2)], ["Window 1: 3 records missing at the end of files."], id="left early"
        ),
        pytest.param(
            [chunk(1, threads=(1, 2), num_records=9), chunk(2, threads=(2, 2))],
            ["Window 1: 1 record missing at the end of files."],
            id="left early by the last of its threads",
        ),
        pytest.param([chunk(1, threads=(1, 2), num_records=9), chunk(2)], [], id="the last thread may have ended"),
        pytest.param([chunk(1, num_records=7), chunk(2, window=2)], [], id="the window ended"),
        pytest.param([chunk(1), chunk(2, num_records=7)], [], id="the last one may be in use"),
    ],
)
def test_of_an_open_window_missing_files_and_ends_of_files_are_reported(chunks, expected):
    assert describe_losses(chunks, []) == expected


def test_of_a_closed_window_the_records_are_counted_and_a_saved_one_has_none_missing():
    log = [LoggedWindow(1, num_records=2_000, is_saved=True), LoggedWindow(2, num_records=1_500)]
    log += [LoggedWindow(3, num_records=10), LoggedWindow(4, is_saved=True), LoggedWindow(5)]
    chunks = [chunk(1), chunk(20, window=2), chunk(22, window=2), chunk(23, window=3), chunk(30, window=4)]
    assert describe_losses(chunks, log) == ["Window 2: 1,480 of 1,500 records are missing."]
    assert describe_losses([], log[3:]) == []
    assert describe_losses([], log[2:]) == ["Window 3: 10 of 10 records are missing."]
