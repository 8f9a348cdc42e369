"""Measured gains are shown with their findings."""

import shutil

import pytest

import kinetoscope
from kinetoscope.analysis.findings.measured_gains import find_measured
from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.formats.experiments import (
    KINDS_WITH_VARIANTS,
    AppliedVariant,
    Experiment,
    ExperimentRow,
    write_experiment,
)
from kinetoscope.variants.registry import load_variants
from trainsim import simulate, stories


def row(change, *, findings=("input_bound",), name="num_workers", verdict="faster", num_variants=1, **fields):
    """Return a measured row."""
    return ExperimentRow(
        variants=[AppliedVariant(name, number) for number in range(1, 1 + num_variants)],
        verdict=verdict,
        reason="",
        code="",
        kinds=["input_bound"],
        findings=list(findings),
        change=change,
        interval=None if change is None else (change - 0.01, change + 0.01),
        **fields,
    )


def measured(*experiments, kind="input_bound"):
    found = find_measured("input_bound", kind, experiments)
    return None if found is None else found.change


def test_the_best_variant_for_a_finding_counts():
    assert measured(Experiment(rows=[row(-0.1), row(-0.3), row(0.5)])) == -0.3


def test_the_newest_experiment_counts():
    assert measured(Experiment(rows=[row(-0.5)]), Experiment(rows=[row(0.2)])) == 0.2


def test_an_experiment_without_a_measurement_hides_no_earlier_one():
    assert measured(Experiment(rows=[row(-0.5)]), Experiment(rows=[row(None, verdict="failed")])) == -0.5


@pytest.mark.parametrize(
    "other", [row(-0.5, findings=["straggler-rank3"]), row(-0.5, num_variants=2), row(None, verdict="failed")]
)
def test_rows_of_other_findings_of_pairs_and_without_a_change_do_not_count(other):
    assert measured(Experiment(rows=[other])) is None


def test_a_variant_that_was_named_counts_for_the_kinds_that_it_may_fix():
    named = Experiment(rows=[row(-0.5, findings=())])
    assert measured(named) == -0.5
    assert measured(named, kind="hang") is None


def test_the_kinds_with_variants_are_those_of_the_variants():
    assert {kind for one in load_variants().values() for kind in one.kinds} == KINDS_WITH_VARIANTS


def test_a_report_has_what_was_measured_in_the_folder_of_its_run(tmp_path):
    folder = tmp_path / "mine"
    simulate(stories.VALUES_AND_LATE_RANK).write(folder / "traces")
    first = kinetoscope.analyze(folder).findings[0]
    assert first.measured is None
    run = RunFolder(folder)
    run.make_folder("experiments/a")
    write_experiment(run, "experiments/a", Experiment(rows=[row(-0.25, findings=[first.id], results="equal")]))
    found = kinetoscope.analyze(folder).findings[0]
    expected = {"variant": "num_workers=1", "change": -0.25, "verdict": "faster", "results": "equal"}
    assert found.to_dict()["measured"] == expected | {"interval": (-0.26, -0.24)}
    shutil.rmtree(folder / "experiments")
    assert kinetoscope.analyze(folder).findings[0].measured is None
