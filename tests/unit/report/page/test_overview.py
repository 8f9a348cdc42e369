"""report/page/overview.py: the sums over all operators and kernels, and the page of a trace in which nothing is."""

from types import SimpleNamespace

from kinetoscope.report.page.overview import compute_call_totals
from support.page_data import page_of, write_trace


def calls(kind, num_calls, total_ns, self_ns):
    return SimpleNamespace(kind=kind, num_calls=num_calls, total_ns=total_ns, self_ns=self_ns)


def as_rows(totals):
    return [(one.kind, one.num_calls, one.total_ns, one.self_ns) for one in totals]


def test_operators_kernels_and_kernel_kinds_have_sums_sorted_by_time():
    operators = [calls("operator", 2, 70, 50), calls("operator", 1, 30, 30)]
    kernels = [calls("copy", 4, 10, 10), calls("matmul", 1, 40, 40), calls("copy", 1, 5, 5)]
    kinds = [("matmul", 1, 40, 40), ("copy", 5, 15, 15)]
    assert as_rows(compute_call_totals(operators, kernels)) == [
        ("operators", 3, 100, 80),
        ("kernels", 6, 55, 55),
        *kinds,
    ]
    assert as_rows(compute_call_totals(operators, [])) == [("operators", 3, 100, 80)]
    assert as_rows(compute_call_totals([], kernels)) == [("kernels", 6, 55, 55), *kinds]


def test_page_of_an_empty_trace_starts_at_0(tmp_path):
    name = {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}
    assert page_of(write_trace(tmp_path / "rank0.json", [name])).origin_ns == "0"
