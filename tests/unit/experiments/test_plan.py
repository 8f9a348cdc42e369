"""Choice of variants from numbers and ids of findings, names, and facts."""

import msgspec
import pytest

from kinetoscope.analysis.findings.finding import build_finding
from kinetoscope.errors import SettingsError
from kinetoscope.experiments.plan import (
    MAX_ROWS,
    choose_candidates,
    find_variants,
    pair_candidates,
    parse_requests,
    suggest_requests,
)
from kinetoscope.variants.facts import Facts, LoaderFacts, OptimizerFacts
from kinetoscope.variants.registry import load_variants

VARIANTS = load_variants()
FACTS = Facts(
    num_threads=2,
    num_cores=4,
    loaders=[LoaderFacts(num_workers=2, is_map_style=True, prefetch_factor=2)],
    optimizers=[OptimizerFacts("SGD", 4, takes_fused=True, takes_foreach=True)],
)


def finding(kind):
    return build_finding(kind, "A title", "Do that.", confidence="high", evidence={})


FINDINGS = [finding("garbage_collection"), finding("input_bound"), finding("hang")]


def labels(requests, facts=FACTS):
    return [one.label for one in choose_candidates(requests, facts)[0]]


def test_a_name_is_tried_with_all_values_that_apply():
    assert labels(parse_requests(["num_workers"], VARIANTS, None)) == [
        "num_workers=0",
        "num_workers=4",
        "num_workers=1",
    ]


@pytest.mark.parametrize(("text", "label"), [("num_workers=3", "num_workers=3"), ("fused=true", "fused=True")])
def test_a_value_is_tried_alone(text, label):
    assert labels(parse_requests([text], VARIANTS, None)) == [label]


@pytest.mark.parametrize("text", ["1", "garbage_collection"])
def test_a_finding_is_named_by_number_or_id(text):
    (request,) = parse_requests([text], VARIANTS, FINDINGS)
    assert request.variant.name == "relaxed_gc"
    assert request.findings == ("garbage_collection",)


def test_one_variant_for_two_findings_is_tried_once():
    requests = parse_requests(["1", "relaxed_gc"], VARIANTS, FINDINGS)
    assert [(one.findings, one.is_named) for one in requests] == [(("garbage_collection",), True)]


@pytest.mark.parametrize(
    ("text", "findings", "message"),
    [
        ("num_worker", None, "Did you mean num_workers?"),
        ("1", None, "need --run RUN"),
        ("9", FINDINGS, "the run has no finding '9'"),
        ("3", FINDINGS, "no variant can fix hang from outside. Do that."),
    ],
)
def test_an_unknown_fix_is_an_error_that_says_what_there_is(text, findings, message):
    with pytest.raises(SettingsError, match="--fix") as raised:
        parse_requests([text], VARIANTS, findings)
    assert message in str(raised.value)


def test_findings_suggest_variants_in_their_order_and_none_on_request():
    names = [request.variant.name for request in suggest_requests(FINDINGS, VARIANTS)]
    assert names[:2] == ["relaxed_gc", "num_workers"]
    assert not any(VARIANTS[name].on_request for name in names)


def test_without_a_finding_that_can_be_fixed_all_variants_are_candidates():
    names = {request.variant.name for request in suggest_requests([finding("hang")], VARIANTS)}
    assert names == {one.name for one in VARIANTS.values() if not one.on_request}


def test_a_finding_that_is_named_is_tried_with_variants_on_request_too():
    names = [one.name for one in find_variants(finding("float32_matmul"), VARIANTS)]
    assert names == ["bf16", "tf32"]


def test_a_named_variant_of_no_use_is_kept_apart_and_others_are_left_out():
    named = parse_requests(["bucket_cap_mb"], VARIANTS, None)
    candidates, _, unused = choose_candidates([*named, *suggest_requests([], VARIANTS)], FACTS)
    assert [request.variant.name for request in unused] == ["bucket_cap_mb"]
    assert len(candidates) <= MAX_ROWS


def test_each_variant_gets_a_row_before_any_gets_a_second_value():
    facts = msgspec.structs.replace(FACTS, num_cores=64, num_kept_gradients=1, num_distributions=1)
    candidates, left_out, _ = choose_candidates(suggest_requests([], VARIANTS), facts)
    names = [one.applied[0].name for one in candidates]
    applying = ["foreach", "fused", "num_threads", "num_workers"]
    assert names == [*applying, "prefetch_factor", "relaxed_gc", "set_to_none", "validate_args"]
    assert {one.applied[0].name for one in left_out} == {"num_threads", "num_workers"}


def test_a_named_variant_gets_a_row_before_those_of_findings():
    requests = [*suggest_requests([], VARIANTS), *parse_requests(["compile", "num_workers"], VARIANTS, None)]
    assert labels(requests)[:2] == ["compile=True", "num_workers=0"]


@pytest.mark.parametrize(
    ("fixes", "labels"),
    [
        (["fused", "foreach"], []),
        (["foreach=True", "fused=False"], ["foreach=True + fused=False"]),
        (
            ["persistent_workers=True", "num_workers=0", "prefetch_factor=8"],
            ["persistent_workers=True + prefetch_factor=8"],
        ),
        (["num_workers=4", "prefetch_factor=8"], ["num_workers=4 + prefetch_factor=8"]),
    ],
)
def test_variants_that_torch_refuses_together_are_no_pair(fixes, labels):
    candidates, *_ = choose_candidates(parse_requests(fixes, VARIANTS, None), FACTS)
    assert [pair.label for pair in pair_candidates(candidates)] == labels


def test_pairs_are_of_different_variants_with_their_best_values():
    candidates, *_ = choose_candidates(parse_requests(["num_workers", "fused", "relaxed_gc"], VARIANTS, None), FACTS)
    best_first = [candidates[3], candidates[0], *candidates[1:3]]
    assert [pair.label for pair in pair_candidates(best_first)] == [
        "num_workers=4 + fused=True",
        "num_workers=4 + relaxed_gc=True",
        "fused=True + relaxed_gc=True",
    ]
