"""benchmarks/trials: finished runs are kept, and counted in a table that says how many there are."""

import sys
from pathlib import Path

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parents[3]))
from benchmarks.trials.records import TrialRecord, append_record, read_records, render_table


def record(kind, program="loader", number=0, change=None, verdicts=(), boot="first", is_complete=True):
    return TrialRecord(
        kind=kind,
        program=program,
        number=number,
        date="2026-01-01",
        machine="2 cores",
        boot=boot,
        is_complete=is_complete,
        load=0.1,
        duration_s=30,
        change=change,
        interval=None if change is None else (change - 0.01, change + 0.01),
        verdicts=list(verdicts),
    )


RECORDS = [
    record("edit", change=-0.4),
    record("planted", change=-0.41, verdicts=["faster"]),
    record("planted", number=1, change=-0.2, verdicts=["unsure"]),
    record("same", verdicts=["same", "unsure", "same"]),
    record("same", number=1, verdicts=["same", "slower"]),
    record("busy", change=0.1, verdicts=["slower"]),
    record("busy", "without an edit", change=0.1, verdicts=["slower"]),
]


def test_a_run_that_was_not_written_completely_is_done_again(tmp_path):
    path = tmp_path / "trials.jsonl"
    assert read_records(path) == []
    append_record(path, RECORDS[0])
    with path.open("ab") as stream:
        stream.write(b'{"kind": "plan')
    assert read_records(path) == RECORDS[:1]
    append_record(path, RECORDS[1])
    assert read_records(path) == RECORDS[:2]


def test_totals_count_runs_and_right_and_wrong_verdicts():
    table = render_table(RECORDS, {"planted": 10, "same": 20, "busy": 20})
    assert "| planted programs | 10 | 2 | 0 | 1 | 0 |" in table
    assert "| six rows without a change | 20 | 2 | 0 | 1 | 1 |" in table
    assert "| beside two busy processes | 20 | 2 | 0 | 0 | 1 |" in table
    assert "| loader | 2 | -40.0 % | -30.5 % | 1 | 1 |" in table


def test_each_run_is_a_row_and_an_empty_table_has_none():
    assert render_table(RECORDS, {}).count("| 2026-01-01 |") == len(RECORDS)
    assert "| planted programs | 10 | 0 | 0 | 0 | 0 |" in render_table([], {"planted": 10})


def test_a_run_is_compared_with_edits_after_the_same_boot():
    later = [record("edit", change=-0.6, boot="second"), record("planted", number=2, change=-0.61, boot="second")]
    assert len({one.key for one in [RECORDS[0], *later]}) == 3
    table = render_table([*RECORDS[:2], *later], {})
    assert "| loader | 2 | -50.0 % | -51.0 % | 2 |" in table


def test_an_incomplete_run_counts_only_if_its_verdict_is_wrong():
    over = [record("planted", number=number, change=-0.2, is_complete=False) for number in (2, 3)]
    unsure, slower = (replace(one, verdicts=[verdict]) for one, verdict in zip(over, ["unsure", "slower"], strict=True))
    table = render_table([*RECORDS[:2], unsure, slower], {"planted": 10})
    assert "| planted programs | 10 | 1 | 2 | 1 | 1 |" in table
