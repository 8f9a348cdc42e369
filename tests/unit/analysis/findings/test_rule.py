"""Rules: a finding is added by a module, its page and its test, and is skipped where its evidence is unknown."""

import sys

import pytest

import kinetoscope
from kinetoscope.analysis.findings import rules
from kinetoscope.analysis.findings.explanations import explanations
from kinetoscope.analysis.findings.rule import find_all, load_rules
from kinetoscope.cli import main
from support.synthetic_evidence import STEP_NS, Run
from trainsim import Settings, simulate, stories
from trainsim.analyses import simulate_and_analyze

KIND = "long_launches"
RULE = """
from kinetoscope.analysis.findings.diagnosis import Diagnosis
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.findings.rule import rule
from kinetoscope.analysis.replay.replay import Change

@rule("long_launches", requires=("gpu",))
def find_long_launches(evidence):
    yield Diagnosis(
        title=lambda cost_ns: f"Long launches: {cost_ns / 1e6:.1f} ms/step",
        advice="Launch less.",
        cost_ns=evidence.cpu.launching_ns,
        fix=Fix(Change(frozenset(["launch"]))),
        evidence={"launch_ns": evidence.cpu.launching_ns},
    )
"""
EXCLUDING_RULE = """
from kinetoscope.analysis.findings.diagnosis import Diagnosis
from kinetoscope.analysis.findings.rule import rule

@rule("long_launches", excludes=("straggler",))
def find_long_launches(evidence):
    yield Diagnosis(
        title=lambda _: "Toy", advice="", cost_ns=evidence.step_ns, fix=None, evidence={}, is_on_gpu=True
    )
"""
PAGE = """# Long launches (`long_launches`)

## Meaning

The CPU launches kernels slowly.

## Check

Read it.

## Fix

Launch less.

## Expected gain

Little.
"""
SETTINGS = stories.SLOW_LAUNCHES


def add_rule(folder, monkeypatch, text):
    """Add a finding of a new kind: these two files."""
    (folder / f"{KIND}.py").write_text(text)
    (folder / f"{KIND}.md").write_text(PAGE)
    monkeypatch.setattr(rules, "__path__", [*rules.__path__, str(folder)])
    explanations.cache_clear()


@pytest.fixture(autouse=True)
def without_added_rules():
    yield
    sys.modules.pop(f"{rules.__name__}.{KIND}", None)
    explanations.cache_clear()


@pytest.fixture
def toy(tmp_path, monkeypatch):
    add_rule(tmp_path, monkeypatch, RULE)
    return KIND


def test_a_finding_is_added_by_its_module_and_its_page(toy, tmp_path, capsys):
    _, report = simulate_and_analyze(SETTINGS)
    found = next(finding for finding in report.findings if finding.kind == toy)
    assert found.saving_ns_per_step
    assert report.saving_of_fix(1 + report.findings.index(found)) == pytest.approx(found.saving_ns_per_step, abs=1)
    assert [finding.kind for finding in report.findings[:2]] == ["host_bound", toy]  # ranked by saving
    simulate(SETTINGS).write(tmp_path / "run")
    assert main(["summary", str(tmp_path / "run")]) == 0
    assert "Long launches: " in capsys.readouterr().out
    assert main(["explain", toy]) == 0
    assert "The CPU launches kernels slowly." in capsys.readouterr().out


def test_a_rule_without_its_evidence_is_skipped(toy):
    _, report = simulate_and_analyze(Settings(num_ranks=1, has_device=False))
    assert toy not in [finding.kind for finding in report.findings]


def test_without_its_module_a_kind_is_gone():
    assert KIND not in [rule.kind for rule in load_rules()]
    assert KIND not in explanations()


def late_loaders():
    """Return evidence of 4 ranks; the loader of rank 1 is slow."""

    def wait_ns(rank, step):
        return STEP_NS // 2 if rank == 1 else 0

    drawn = Run(
        ranks=range(4),
        work_ns=lambda rank, step: STEP_NS + wait_ns(rank, step),
        columns=lambda rank, step: {"data_wait_ns": wait_ns(rank, step)},
    )
    return drawn.evidence()


def test_the_confidence_of_a_finding_is_lowered_where_another_one_excludes_it(tmp_path, monkeypatch):
    evidence, found = late_loaders(), []
    for toy_rule in (None, EXCLUDING_RULE):
        if toy_rule is not None:
            add_rule(tmp_path, monkeypatch, toy_rule)
        found += [finding.confidence for finding in find_all(evidence) if finding.kind == "straggler"]
    assert found == ["high", "medium"]


def test_a_kept_report_fixes_its_findings_again(tmp_path):
    simulate(SETTINGS).write(tmp_path)
    first, kept = kinetoscope.analyze(tmp_path), kinetoscope.analyze(tmp_path)
    numbers = range(1, len(first.findings) + 1)
    assert kept == first
    assert [kept.saving_of_fix(number) for number in numbers] == [first.saving_of_fix(number) for number in numbers]
    assert "fix" not in kept.findings[0].to_dict()
