"""benchmarks/trials: finished runs are kept, and counted in a table that says how many there are."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3]))
from benchmarks.trials.records import TrialRecord, append_record, read_records, render_table


def record(kind, program="loader", number=0, change=None, verdicts=()):
    return TrialRecord(
        kind=kind,
        program=program,
        number=number,
        date="2026-01-01",
        machine="2 cores",
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
    assert "| planted programs | 2 | 10 | 1 | 0 |" in table
    assert "| six rows without a change | 2 | 20 | 1 | 1 |" in table
    assert "| beside two busy processes | 2 | 20 | 0 | 1 |" in table
    assert "| loader | 2 | -40.0 % | -30.5 % | 1 | 1 |" in table


def test_each_run_is_a_row_and_an_empty_table_has_none():
    assert render_table(RECORDS, {}).count("| 2026-01-01 |") == len(RECORDS)
    assert "| planted programs | 0 | 10 | 0 | 0 |" in render_table([], {"planted": 10})
