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
        peak_bytes=300 << 20,
        step_after_ns=1e7 * (1 + change),
        interval=(change - 0.01, change + 0.01),
    )


def lines(*rows, width=140):
    out = io.StringIO()
    experiment = Experiment(rows=list(rows), step_ns=1e7, num_steps=60, num_rounds=3, num_starts=20, noise=0.01)
    Console(file=out, width=width).print(render_experiment(experiment, width))
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
    assert [line.split("  ")[0] for line in shown[2:5]] == ["num_workers=4 +", "fused=True", "num_workers=4"]
    assert " ".join(shown[2].split()).startswith("num_workers=4 + 5.00 -50.0 % -51.0 to -49.0 % faster")


def test_without_a_gain_there_is_no_code_to_write():
    assert "To make a gain permanent:" not in lines(row("slower", 0.2, num_threads=1))


def test_a_narrow_screen_truncates_no_name_and_no_number():
    shown = lines(row("unsure", -0.5, num_workers=4, validate_args=False), width=80)
    assert "…" not in "".join(shown)
    assert [line.rstrip() for line in shown[:4]] == [
        "                     step ms   change           95 % CI  verdict",
        "unmodified              10.0",
        "num_workers=4 +         5.00  -50.0 %  -51.0 to -49.0 %  inconclusive",
        "validate_args=False",
    ]
    assert "num_workers=4 + validate_args=False: a reason; peak memory 300.0 MiB." in " ".join(shown)


def test_a_screen_that_fits_has_all_columns():
    shown = lines(row("faster", -0.5, num_workers=8), width=88)
    assert shown[0].split()[-2:] == ["memory", "results"]
    assert "peak memory" not in " ".join(shown)
