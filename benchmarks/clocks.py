"""Accuracy of clock estimates: two ranks on clocks that really differ, with known offsets."""

import statistics
from typing import Any

from benchmarks import from_tests
from benchmarks.suite import Measure, SuiteResult

hosts = from_tests.hosts()


def run(*, quick: bool) -> SuiteResult:
    """Compare a hundred times per setting. A setting that this machine cannot have is left out, with a note."""
    num_runs = 10 if quick else 100
    measures: list[Measure] = []
    notes: list[str] = []
    for name, commands, compare in _make_settings(num_runs):
        if reason := hosts.unavailable(*commands):
            notes.append(f"{name}: left out. {reason}")
        else:
            measures += _make_measures(name, compare()[1:])
    title = f"clocks of two ranks, compared {num_runs} times through a TCPStore"
    return SuiteResult(suite="clocks", title=title, measures=measures, notes=notes)


def _make_settings(num_runs: int) -> list[Any]:
    apart, truth = hosts.IN_A_TIME_NAMESPACE, hosts.TRUE_IN_NAMESPACE
    drifting = hosts.faketime("+3h x1.0001")

    def through_a_slow_network() -> list[dict[str, Any]]:
        with hosts.network_namespaces() as (near, far):
            return hosts.compare([*far, *apart], truth, num_runs, before_rank0=near)

    return [
        ("hours apart", [apart], lambda: hosts.compare(apart, truth, num_runs)),
        ("hours apart, 100 ppm", [drifting], lambda: hosts.compare(drifting, "kernel", num_runs)),
        ("through 1 ms of delay", [apart, hosts.IN_A_NETWORK_NAMESPACE], through_a_slow_network),
    ]


def _make_measures(name: str, runs: list[dict[str, Any]]) -> list[Measure]:
    within = [abs(comparison["error_ns"]) <= comparison["bound_ns"] + comparison["width_ns"] for comparison in runs]
    bounds = sorted(comparison["bound_ns"] / 1000 for comparison in runs)
    errors = sorted(abs(comparison["error_ns"]) / 1000 for comparison in runs)
    spread = f"median {statistics.median(bounds):.0f} us, worst {bounds[-1]:.0f} us"
    measures = [
        Measure(f"{name}: truth within the bound", 100 * sum(within) / len(within), "%", f"{sum(within)} runs"),
        Measure(f"{name}: bound", bounds[int(0.99 * (len(bounds) - 1))], "us", f"99th percentile; {spread}"),
        Measure(f"{name}: error", statistics.median(errors), "us", f"median; worst {errors[-1]:.1f} us"),
    ]
    if "ppm" in name:
        measures.append(Measure(f"{name}: drift found", -runs[-1]["drift_ppm"], "ppm", "by the last run"))
    return measures
