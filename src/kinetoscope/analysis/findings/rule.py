"""Rules: one module per kind of finding in the package `rules`, registered by a decorator.

A new finding is such a module, its page ``KIND.md`` in the same folder, and its test.
"""

import importlib
import pkgutil
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kinetoscope.analysis.findings import rules
from kinetoscope.analysis.findings.diagnosis import Diagnosis, assess
from kinetoscope.analysis.findings.evidence.pulse import PulseEvidence
from kinetoscope.analysis.findings.evidence.run import Evidence
from kinetoscope.analysis.findings.finding import Finding


@dataclass(frozen=True)
class Excludable:
    """A ``finding``, and the one reported ``instead`` where a rule which excludes its kind has found something."""

    finding: Finding
    instead: Finding


Detect = Callable[[Any], Iterable[Diagnosis | Finding | Excludable]]


@dataclass(frozen=True)
class Rule:
    """The rule for findings of one kind.

    It ``reads`` the evidence of a recording, or that of the pulse, and is skipped where a part that it ``requires`` is
    unknown. Where it finds something, it ``excludes`` those findings of other kinds that are `Excludable`.
    """

    kind: str
    detect: Detect
    reads: type
    requires: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()

    def find(self, evidence: Evidence | PulseEvidence) -> list[Finding | Excludable]:
        """Return the findings of a run."""
        if not isinstance(evidence, self.reads) or any(getattr(evidence, part) is None for part in self.requires):
            return []
        found = list[Finding | Excludable]()
        for one in self.detect(evidence):
            if not isinstance(one, Diagnosis):
                found.append(one)
            elif isinstance(evidence, Evidence) and (finding := assess(self.kind, one, evidence)) is not None:
                found.append(finding)
        return found


_RULES: dict[str, Rule] = {}


def rule(
    kind: str, *, reads: type = Evidence, requires: Sequence[str] = (), excludes: Sequence[str] = ()
) -> Callable[[Detect], Detect]:
    """Register a function as the rule for a kind. It yields diagnoses, or findings that need no assessment."""

    def register(detect: Detect) -> Detect:
        _RULES[kind] = Rule(kind, detect, reads, tuple(requires), tuple(excludes))
        return detect

    return register


def load_rules() -> list[Rule]:
    """Return the rules of the modules in `rules`, each named like its kind."""
    kinds = sorted(module.name for module in pkgutil.iter_modules(rules.__path__))
    for kind in kinds:
        importlib.import_module(f"{rules.__name__}.{kind}")
    return [_RULES[kind] for kind in kinds]


def find_all(evidence: Evidence | PulseEvidence) -> list[Finding]:
    """Return the findings of all rules that read this evidence, lowered where another one excludes them."""
    loaded = load_rules()
    found = [one for rule in loaded for one in rule.find(evidence)]
    kinds = {one.kind for one in found if isinstance(one, Finding)}
    excluded = {kind for rule in loaded if rule.kind in kinds for kind in rule.excludes}
    return [one if isinstance(one, Finding) else _apply_exclusion(one, excluded) for one in found]


def _apply_exclusion(one: Excludable, excluded: Collection[str]) -> Finding:
    return one.instead if one.finding.kind in excluded else one.finding
