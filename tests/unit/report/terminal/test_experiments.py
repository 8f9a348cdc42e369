"""report/terminal: the screen of `kinetoscope try`."""

import io

from rich.console import Console

from kinetoscope.formats.experiments import AppliedVariant, Experiment, ExperimentRow
from kinetoscope.report.terminal.experiments import render_experiment


def row(verdict, change, **variants):
    applied = [AppliedVariant(name, value) for name, value in variants.items()]
    code = "\n".join(f"{one.name}={one.value}" for one in applied)
    return ExperimentRow(
        variants=applied,
        verdict=verdict,
        reason="a reason",
        code=code,
        change=change,
        step_after_ns=1e7 * (1 + change),
        interval=(change - 0.01, change + 0.01),
    )


def lines(*rows):
    out = io.StringIO()
    experiment = Experiment(rows=list(rows), step_ns=1e7, num_steps=60, num_rounds=3, num_starts=20, noise=0.01)
    Console(file=out, width=140).print(render_experiment(experiment))
    return out.getvalue().splitlines()


def test_each_variant_that_gains_has_its_best_value_as_code_to_write():
    rows = [
        row("faster", -0.5, num_workers=4, fused=True),
        row("faster", -0.4, num_workers=4),
        row("faster", -0.3, num_workers=2),
        row("faster", -0.2, fused=True),
        row("same", 0.0, relaxed_gc=True),
        row("slower", 0.2, num_threads=1),
    ]
    shown = lines(*rows)
    code = shown[shown.index("To make a gain permanent:") + 1 :]
    assert code == ["  num_workers=4", "  fused=True"]
    found = " ".join(shown[2].split())
    assert found.startswith("num_workers=4 + fused=True 5.00 -50.0 % -51.0 to -49.0 % faster")


def test_without_a_gain_there_is_no_code_to_write():
    assert "To make a gain permanent:" not in lines(row("slower", 0.2, num_threads=1))
