"""The identity of findings, and their order: urgent ones first, then by saving weighted by confidence."""

from dataclasses import replace

import pytest

from kinetoscope.analysis.findings.finding import Where, build_finding
from kinetoscope.analysis.findings.ranking import rank
from trainsim import Fault, Settings, planted_run
from trainsim.analyses import analyze_cached

MS = 1_000_000
STEP_NS = 100.0 * MS


def draw(kind="blocked", confidence="high", *, saving_ms=None, cost_ms=None, where=None, **evidence):
    """Return a finding with the given saving and cost."""
    saving_ns = None if saving_ms is None else saving_ms * MS
    cost_ns = None if cost_ms is None else cost_ms * MS
    return build_finding(
        kind,
        "Title",
        "Advice.",
        confidence=confidence,
        evidence=evidence,
        where=where,
        saving_ns=saving_ns,
        cost_ns=cost_ns,
    )


def kinds_of(*findings):
    return [finding.kind for finding in rank(findings, STEP_NS)]


@pytest.mark.parametrize(
    ("confidence", "saving_ms", "other_ms"),
    [("medium", 20, 12.1), ("medium", 20, 11.9), ("low", 20, 6.1), ("low", 20, 5.9)],
)
def test_savings_are_weighted_by_confidence(confidence, saving_ms, other_ms):
    weight = {"medium": 0.6, "low": 0.3}[confidence]
    expected = ["gc", "copy"] if saving_ms * weight > other_ms else ["copy", "gc"]
    assert kinds_of(draw("copy", "high", saving_ms=other_ms), draw("gc", confidence, saving_ms=saving_ms)) == expected


def test_the_cost_ranks_a_finding_without_a_saving_and_breaks_ties():
    without = draw("no_saving", cost_ms=30)
    costly, cheap = draw("costly", saving_ms=20, cost_ms=60), draw("cheap", saving_ms=20, cost_ms=25)
    assert kinds_of(cheap, costly, without) == ["no_saving", "costly", "cheap"]


def test_imminent_out_of_memory_comes_first_and_hangs_second():
    leak = draw("memory_growth", "medium", steps_until_full=500)
    hang = draw("hang", "high")
    large = draw("blocked", saving_ms=90)
    assert kinds_of(large, hang, leak) == ["memory_growth", "hang", "blocked"]


def test_a_leak_without_a_deadline_ranks_as_a_tenth_of_a_step():
    leak = draw("memory_growth", "high")
    assert kinds_of(draw("large", saving_ms=11), draw("small", saving_ms=9), leak) == [
        "large",
        "memory_growth",
        "small",
    ]


def test_minor_findings_come_last():
    """Low confidence and below 3 % of a step: even behind a smaller saving of high confidence."""
    assert kinds_of(draw("minor", "low", saving_ms=2.9), draw("sure", "high", saving_ms=0.5)) == ["sure", "minor"]


def test_ids_name_kind_and_location_but_nothing_of_the_user():
    secret = Where(ranks=(3,), steps=(1, 2), lines=("/home/ada/secret_model.py:41",))
    one = draw("hot_line", where=secret)
    assert one.id.startswith("hot_line-rank3-")
    assert "secret" not in one.id
    assert "ada" not in one.id
    assert one.id == draw("hot_line", where=replace(secret, steps=(7,))).id
    assert one.id != draw("hot_line", where=replace(secret, lines=("/home/ada/secret_model.py:42",))).id
    assert one.id != draw("hot_line", where=replace(secret, ranks=(4,))).id
    assert draw("float64").id == "float64"


def test_ids_of_many_ranks_stay_short():
    many = draw("memory_growth", where=Where(ranks=tuple(range(1024))))
    assert len(many.id) < 30
    assert many.id != draw("memory_growth", where=Where(ranks=tuple(range(1023)))).id


@pytest.mark.parametrize("seed", range(6))
def test_ids_are_unique_in_a_report(seed):
    settings, _ = planted_run(seed)
    ids = [finding.id for finding in analyze_cached(settings)[1].findings]
    assert len(ids) == len(set(ids))


def test_a_fault_keeps_its_id_in_another_recording():
    faults = (Fault(kind="late_host", cost_ns=5 * MS, ranks=(1,)), Fault(kind="gc", cost_ns=6 * MS, every=2))
    settings = [Settings(seed=seed, num_ranks=2, num_steps=8 + seed, faults=faults) for seed in (0, 1)]
    one, other = ({finding.id for finding in analyze_cached(each)[1].findings} for each in settings)
    assert one == other != set()


def test_saving_share_is_the_saving_in_parts_of_the_step():
    faults = (Fault(kind="slow_loader", cost_ns=9 * MS),)
    _, report = analyze_cached(Settings(num_ranks=1, num_steps=8, faults=faults))
    finding = report.to_dict()["findings"][0]
    assert finding["saving_share"] == pytest.approx(finding["saving_ns_per_step"] / report.run["step_ns"], abs=1e-3)


def test_a_report_has_hints_and_contention_of_the_contract():
    _, report = analyze_cached(Settings(num_ranks=1, num_steps=8))
    run = report.to_dict()["run"]
    assert run["hints"] == []
    assert run["contention"] is None
