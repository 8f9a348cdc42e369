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


def test_without_rows_and_times_there_is_no_table():
    out = io.StringIO()
    experiment = Experiment(num_steps=20, num_starts=1, notes=["Interrupted."], is_complete=False)
    Console(file=out).print(render_experiment(experiment, 80))
    assert out.getvalue() == "Nothing was measured.\nInterrupted.\n"


def test_the_noise_is_that_of_the_starts_of_a_round():
    assert "; two unmodified starts of one round differ by about 1.4 %." in " ".join(
        lines(row("same", 0.0, foreach=True))
    )


def test_the_code_to_write_is_that_of_the_best_row_with_other_variants_as_alternatives():
    rows = [
        row("faster", -0.5, num_workers=4, fused=True),
        row("faster", -0.4, num_workers=4),
        row("faster", -0.3, num_workers=2),
        row("faster", -0.2, fused=True),
        row("faster", -0.1, set_to_none=True),
        row("same", 0.0, relaxed_gc=True),
        row("slower", 0.2, num_threads=1),
    ]
    shown = lines(*rows)
    code = shown[shown.index("To make the best gain permanent:") + 1 :]
    assert code == ["  num_workers=4", "  fused=True", "", "Alternatives, measured alone:", "  set_to_none=True"]
    assert [line.split("  ")[0] for line in shown[2:5]] == ["num_workers=4 +", "fused=True", "num_workers=4"]
    assert " ".join(shown[2].split()).startswith("num_workers=4 + 5.00 -50.0 % -51.0 to -49.0 % faster")


def test_the_code_of_a_pair_that_is_worse_than_one_of_its_variants_is_not_recommended():
    rows = [row("faster", -0.43, num_threads=1), row("faster", -0.28, num_workers=0)]
    shown = lines(*rows, row("faster", -0.22, num_threads=1, num_workers=0))
    code = shown[shown.index("To make the best gain permanent:") + 1 :]
    assert code == ["  num_threads=1", "", "Alternatives, measured alone:", "  num_workers=0"]


def test_without_a_gain_there_is_no_code_to_write():
    assert not any("permanent" in line for line in lines(row("slower", 0.2, num_threads=1)))


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
