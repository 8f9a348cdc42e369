"""docs/flops.md has the peak of every device that is known, and only what counts."""

from pathlib import Path

from kinetoscope.analysis.gpu.device_peaks import peak_flops_per_s
from kinetoscope.analysis.gpu.flop_formulas import FORMULAS

PAGE = (Path(__file__).parents[2] / "docs" / "flops.md").read_text(encoding="utf-8")


def test_the_table_of_peaks_is_what_reports_compare_with():
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in PAGE.split("| TFLOP/s |")[1].splitlines()]
    types = ["float64", "float32", "TF32", "float16", "bfloat16", "float8"]
    for names, *cells in [row for row in rows[2:] if row]:
        for name in names.split(", "):
            peaks = {dtype: peak_flops_per_s(name, dtype, is_full_float32=True) for dtype in types}
            tf32 = peak_flops_per_s(name, "float32")
            peaks["TF32"] = None if tf32 == peaks["float32"] and not cells[2] else tf32
            assert [None if peak is None else f"{peak / 1e12:g}" for peak in peaks.values()] == [
                cell or None for cell in cells
            ], name


def test_operators_that_count_are_named():
    products = {name.removeprefix("aten::") for name in FORMULAS if "attention" not in name}
    assert {name for name in products if f"`{name}`" not in PAGE} == {"_convolution"}
