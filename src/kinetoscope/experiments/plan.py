"""Choice of the variants to measure: requested ones, or those that findings suggest."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import combinations, zip_longest

from kinetoscope.analysis.findings.finding import Finding
from kinetoscope.analysis.findings.triable import is_triable
from kinetoscope.errors import SettingsError
from kinetoscope.formats.experiments import AppliedVariant
from kinetoscope.variants.facts import Facts
from kinetoscope.variants.registry import Value, Variant

MAX_ROWS = 8
MAX_PAIRED = 3
"""Variants that gained and are tried in pairs: three pairs at most."""


@dataclass(frozen=True)
class Request:
    """A variant to measure, with a ``value`` or with all that apply, for these findings.

    One that was named gets a row in any case.
    """

    variant: Variant
    value: Value | None = None
    findings: tuple[str, ...] = ()
    is_named: bool = False


@dataclass(frozen=True)
class Candidate:
    """A row to measure: one variant with a value, or a pair."""

    requests: tuple[Request, ...]
    applied: tuple[AppliedVariant, ...]

    @property
    def label(self) -> str:
        """The variants with their values."""
        return " + ".join(one.label for one in self.applied)

    def excludes(self, other: "Candidate") -> bool:
        """Return whether a variant of this row cannot be combined with one of another row."""
        names = {one.name for one in other.applied}
        pairs = zip(self.requests, self.applied, strict=True)
        return any(not names.isdisjoint(request.variant.excludes.get(one.value, ())) for request, one in pairs)


def find_variants(finding: Finding, variants: Mapping[str, Variant]) -> list[Variant]:
    """Return the variants that may fix a finding, first those that need no request."""
    found = [one for one in variants.values() if finding.kind in one.kinds]
    return sorted(found, key=lambda one: one.on_request)


def parse_requests(
    fixes: Sequence[str], variants: Mapping[str, Variant], findings: Sequence[Finding] | None
) -> list[Request]:
    """Return what the values of ``--fix`` request: numbers and ids of findings, or names of variants.

    ``findings`` belong to the run, ranked; None without a run. Raises `SettingsError` for an unknown one.
    """
    return _merge(request for text in fixes for request in _parse(text, variants, findings))


def _parse(text: str, variants: Mapping[str, Variant], findings: Sequence[Finding] | None) -> list[Request]:
    name, has_value, value = text.partition("=")
    if name in variants:
        chosen = variants[name]
        return [Request(chosen, chosen.parse_value(value) if has_value else None, is_named=True)]
    if findings is None:
        close = get_close_matches(name, variants, 1)
        hint = f"Did you mean {close[0]}?" if close else f"Variants: {', '.join(variants)}."
        raise SettingsError(f"--fix: there is no variant {text!r}. {hint} Numbers and ids of findings need --run RUN.")
    finding = _find(text, findings)
    chosen_for = find_variants(finding, variants)
    if not chosen_for:
        raise SettingsError(f"--fix: no variant can fix {finding.id} from outside. {finding.advice}")
    return [Request(one, findings=(finding.id,)) for one in chosen_for]


def _find(text: str, findings: Sequence[Finding]) -> Finding:
    for number, finding in enumerate(findings, start=1):
        if text in (finding.id, str(number)):
            return finding
    ids = ", ".join(finding.id for finding in findings) or "none"
    raise SettingsError(f"--fix: the run has no finding {text!r}, and there is no such variant. Findings: {ids}.")


def suggest_requests(findings: Sequence[Finding], variants: Mapping[str, Variant]) -> list[Request]:
    """Return what findings suggest, the largest estimated saving first; all variants if they suggest none."""
    suggested = _merge(
        Request(one, findings=(finding.id,))
        for finding in findings
        if is_triable(finding)
        for one in find_variants(finding, variants)
        if not one.on_request
    )
    return suggested or [Request(one) for one in variants.values() if not one.on_request]


def _merge(requests: Iterable[Request]) -> list[Request]:
    """Join requests of one variant and value."""
    merged: dict[tuple[str, Value | None], Request] = {}
    for one in requests:
        key = one.variant.name, one.value
        before = merged.get(key, one)
        ids = tuple(dict.fromkeys([*before.findings, *one.findings]))
        merged[key] = Request(one.variant, one.value, ids, before.is_named or one.is_named)
    return list(merged.values())


def order_requests(requests: Sequence[Request]) -> list[Request]:
    """Return the requests in the order in which they get rows: named ones first."""
    return sorted(requests, key=lambda one: not one.is_named)


def choose_candidates(
    requests: Sequence[Request], facts: Facts
) -> tuple[list[Candidate], list[Candidate], list[Request]]:
    """Return the rows to measure in a program, those beyond the maximum, and the named requests that do not apply.

    Each request gets a row before any of them gets a second one for another value.
    """
    by_request, unused = list[list[Candidate]](), list[Request]()
    for request in order_requests(requests):
        values = [request.value] if request.value is not None else list(request.variant.find_values(facts))
        by_request.append([Candidate((request,), (AppliedVariant(request.variant.name, value),)) for value in values])
        if not values and request.is_named:
            unused.append(request)
    found = [one for of_turn in zip_longest(*by_request) for one in of_turn if one is not None]
    return found[:MAX_ROWS], found[MAX_ROWS:], unused


def pair_candidates(gained: Sequence[Candidate]) -> list[Candidate]:
    """Return pairs of the variants that gained, the best first; each with its best value."""
    best = {one.applied[0].name: one for one in reversed(gained)}
    kept = [one for one in gained if best[one.applied[0].name] is one][:MAX_PAIRED]
    return [
        Candidate(first.requests + second.requests, first.applied + second.applied)
        for first, second in combinations(kept, 2)
        if not (first.excludes(second) or second.excludes(first))
    ]
