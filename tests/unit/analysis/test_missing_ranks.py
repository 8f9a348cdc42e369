"""One rank of many: nothing is sure that only the traces of all ranks could show."""

from dataclasses import replace

import pytest

import kinetoscope
from simulated_training import Fault, Settings, simulate

MS = 1_000_000
EIGHT = Settings(num_ranks=8, num_steps=10, has_device=False)
LATE = Fault(kind="late_host", ranks=(3,), cost_ns=4 * MS)
LATER = Fault(kind="late_host", ranks=(5,), cost_ns=4 * MS)
PAUSES = Fault(kind="gc", cost_ns=4 * MS)


def reports_of(folder, *faults, rank):
    """The reports on a run, and on one of its ranks alone."""
    paths = simulate(replace(EIGHT, faults=faults)).write(folder)
    alone = next(path for path in paths if f"rank{rank}." in path.name)
    return kinetoscope.analyze(folder, cache=False), kinetoscope.analyze(alone, cache=False)


def confidences(report):
    return {finding.kind: finding.confidence for finding in report.findings}


def test_one_of_two_late_ranks_is_not_surely_what_the_run_would_gain(tmp_path):
    together, alone = reports_of(tmp_path, LATE, LATER, rank=3)
    assert confidences(together)["straggler"] == "high"
    assert "python_overhead" not in confidences(together)
    assert confidences(alone) == {"python_overhead": "medium"}
    assert any("savings hold only if they gain as much" in note for note in alone.run["notes"])


@pytest.mark.parametrize("rank", [0, 3])
def test_a_fault_of_all_ranks_is_sure_only_where_all_were_recorded(rank, tmp_path):
    together, alone = reports_of(tmp_path, PAUSES, rank=rank)
    assert confidences(together)["garbage_collection"] == "high"
    assert confidences(alone)["garbage_collection"] == "medium"


def test_a_rank_that_waits_for_one_that_is_missing_names_no_late_rank(tmp_path):
    _, alone = reports_of(tmp_path, LATE, rank=0)
    assert alone.stragglers == []
    assert set(confidences(alone)) <= {"exposed_communication"}
    assert "high" not in confidences(alone).values()


def test_a_rank_that_is_the_only_one_is_sure(tmp_path):
    simulate(replace(EIGHT, num_ranks=1, faults=(PAUSES,))).write(tmp_path)
    assert confidences(kinetoscope.analyze(tmp_path, cache=False))["garbage_collection"] == "high"
