"""analysis/compare/module_blocks.py: changes by module of simulated runs, repeated blocks as one."""

from dataclasses import replace

import pytest

from kinetoscope.analysis.compare.compare import compare_reports
from trainsim import Fault, Settings
from trainsim.analyses import analyze_cached

RUN = Settings(seed=1, num_ranks=2, num_steps=12, step_ns=6_000_000, num_layers=8, has_modules=True)


def simulated(seed=1, **options):
    return analyze_cached(replace(RUN, seed=seed, **options))[1]


def modules(comparison):
    """Return the verdict of each module, by kind and name."""
    return {(row.kind, row.name): row.verdict for row in comparison.rows if row.kind.startswith("module")}


@pytest.mark.parametrize("fault", ["float32", "float64"])
def test_only_the_layer_that_got_slower_is_named_and_the_others_are_one_row(fault):
    slow = simulated(2, faults=(Fault(kind=fault, cost_ns=200_000, layer=3),))
    found = compare_reports(simulated(), slow)
    assert modules(found) == {
        ("module on device", "Model.layers.3"): "slower",
        ("module on device", "Model.layers.0-2,4-7"): "same",
        ("module", "Model.layers.0-7"): "same",
    }
    (row,) = (row for row in found.rows if row.name == "Model.layers.3")
    assert row.is_worse
    assert row.after - row.before == pytest.approx(3 * 200_000, rel=0.05)
    assert "slower" not in modules(compare_reports(slow, simulated())).values()


def test_slow_python_changes_the_time_of_the_layer_on_the_cpu():
    slow = simulated(2, faults=(Fault(kind="slow_python", cost_ns=200_000, layer=5),))
    found = modules(compare_reports(simulated(), slow))
    assert found["module", "Model.layers.5"] == "slower"
    assert found["module on device", "Model.layers.0-7"] == "same"


def test_a_layer_that_one_run_does_not_have_is_new_or_gone():
    shorter = simulated(2, num_layers=7)
    assert modules(compare_reports(simulated(), shorter))["module on device", "Model.layers.7"] == "gone"
    assert modules(compare_reports(shorter, simulated()))["module on device", "Model.layers.7"] == "new"


def test_modules_of_a_repeated_recording_have_not_changed():
    for seed in range(2, 6):
        found = modules(compare_reports(simulated(), simulated(seed)))
        assert found.keys() == {("module on device", "Model.layers.0-7"), ("module", "Model.layers.0-7")}
        assert set(found.values()) <= {"same", "unsure"}


@pytest.mark.parametrize(("with_modules", "when"), [((True, False), "before"), ((False, True), "after")])
def test_modules_of_one_run_only_are_not_compared(with_modules, when):
    before, after = (simulated(seed, has_modules=has) for seed, has in enumerate(with_modules, start=1))
    found = compare_reports(before, after)
    assert modules(found) == {}
    assert f"Modules are not compared: they were recorded only {when}." in found.notes
