"""Rules: a finding is added by a module, its page and its test, and is skipped where its evidence is unknown."""

import sys

import pytest

import kinetoscope
from kinetoscope.analysis.findings import rules
from kinetoscope.analysis.findings.explanations import explanations
from kinetoscope.analysis.findings.rule import load_rules
from kinetoscope.cli import main
from simulated_training import Settings, planted_settings, simulate
from simulated_training.analysed import simulate_and_analyze

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
SETTINGS = planted_settings(0, "slow_launches")


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Add a finding of a new kind: these two files."""
    (tmp_path / f"{KIND}.py").write_text(RULE)
    (tmp_path / f"{KIND}.md").write_text(PAGE)
    monkeypatch.setattr(rules, "__path__", [*rules.__path__, str(tmp_path)])
    explanations.cache_clear()
    yield KIND
    sys.modules.pop(f"{rules.__name__}.{KIND}", None)
    explanations.cache_clear()


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


def test_a_rule_runs_after_those_that_exclude_it():
    order = [rule.kind for rule in load_rules()]
    excluded = [(rule.kind, kind) for rule in load_rules() for kind in rule.excludes]
    assert excluded
    assert all(order.index(kind) < order.index(other) for kind, other in excluded)


def test_a_kept_report_fixes_its_findings_again(tmp_path):
    simulate(SETTINGS).write(tmp_path)
    first, kept = kinetoscope.analyze(tmp_path), kinetoscope.analyze(tmp_path)
    numbers = range(1, len(first.findings) + 1)
    assert kept == first
    assert [kept.saving_of_fix(number) for number in numbers] == [first.saving_of_fix(number) for number in numbers]
    assert "fix" not in kept.findings[0].to_dict()
