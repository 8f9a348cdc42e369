"""One rank of many: nothing is sure that only the traces of all ranks could show."""

from dataclasses import replace

import pytest

import kinetoscope
from trainsim import Fault, Settings, simulate

MS = 1_000_000
EIGHT = Settings(num_ranks=8, num_steps=10, has_device=False)
LATE = Fault(kind="late_host", ranks=(3,), cost_ns=4 * MS)
LATER = Fault(kind="late_host", ranks=(5,), cost_ns=4 * MS)
PAUSES = Fault(kind="gc", cost_ns=4 * MS)


def reports_of(folder, *faults, rank):
    """Return the reports on a run, and on one of its ranks alone."""
    paths = simulate(replace(EIGHT, faults=faults)).write(folder)
    alone = next(path for path in paths if f"rank{rank}." in path.name)
    return kinetoscope.analyze(folder, cache=False), kinetoscope.analyze(alone, cache=False)


def confidences(report):
    return {finding.kind: finding.confidence for finding in report.findings}


def test_saving_of_one_of_two_stragglers_is_uncertain(tmp_path):
    together, alone = reports_of(tmp_path, LATE, LATER, rank=3)
    assert confidences(together)["straggler"] == "high"
    assert "python_overhead" not in confidences(together)
    assert confidences(alone) == {"python_overhead": "medium"}
    assert any("savings hold only if these ranks gain as much" in note for note in alone.run["notes"])


@pytest.mark.parametrize("rank", [0, 3])
def test_a_fault_of_all_ranks_is_sure_only_where_all_were_recorded(rank, tmp_path):
    together, alone = reports_of(tmp_path, PAUSES, rank=rank)
    assert confidences(together)["garbage_collection"] == "high"
    assert confidences(alone)["garbage_collection"] == "medium"


def test_rank_that_waits_for_a_missing_one_names_no_straggler(tmp_path):
    _, alone = reports_of(tmp_path, LATE, rank=0)
    assert alone.stragglers == []
    assert set(confidences(alone)) <= {"exposed_communication"}
    assert "high" not in confidences(alone).values()


def test_a_rank_that_is_the_only_one_is_sure(tmp_path):
    simulate(replace(EIGHT, num_ranks=1, faults=(PAUSES,))).write(tmp_path)
    assert confidences(kinetoscope.analyze(tmp_path, cache=False))["garbage_collection"] == "high"


@pytest.mark.parametrize("num_ranks", [2, 4])
@pytest.mark.parametrize("kind", ["late_host", "late_device"])
def test_a_wait_for_a_missing_rank_names_it_and_has_no_saving(kind, num_ranks, tmp_path):
    late = num_ranks - 1
    fault = Fault(kind=kind, ranks=(late,), cost_ns=6 * MS)
    settings = Settings(num_ranks=num_ranks, num_steps=12, step_ns=6 * MS, missing_ranks=(late,), faults=(fault,))
    simulate(settings).write(tmp_path)
    report = kinetoscope.analyze(tmp_path, cache=False)
    (found,) = (finding for finding in report.findings if finding.kind == "exposed_communication")
    is_shown = kind == "late_host"  # a slow device makes all calls of a step as long
    what = "waiting for" if is_shown else "with"
    assert found.title.endswith(f"ms/step {what} rank {late} (not recorded)")
    assert found.saving_ns_per_step is None
    assert found.confidence == "medium"
    assert "bucket_cap_mb" not in found.advice


def test_slow_transfers_with_a_missing_rank_are_not_reported_as_waits(tmp_path):
    fault = Fault(kind="slow_network", cost_ns=2 * MS)
    simulate(Settings(num_ranks=2, num_steps=12, step_ns=6 * MS, missing_ranks=(1,), faults=(fault,))).write(tmp_path)
    report = kinetoscope.analyze(tmp_path, cache=False)
    (found,) = (finding for finding in report.findings if finding.kind == "exposed_communication")
    assert "ms/step with rank 1 (not recorded)" in found.title
    assert found.saving_ns_per_step is None
