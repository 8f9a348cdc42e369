"""The module with at least half of a finding's cost: of faults of simulated runs in one layer, and in all."""

import json
from dataclasses import replace

import pytest

import kinetoscope
from kinetoscope.report.descriptions import describe_finding
from trainsim import FINDINGS, Fault, Settings
from trainsim.analyses import analyze_cached

LAYER = 5
MODULE = f"Model.layers.{LAYER}"
RUN = Settings(seed=1, num_ranks=2, num_steps=12, step_ns=6_000_000, num_layers=8, has_modules=True, has_states=True)
FAULTS = {
    "items": Fault(kind="items", count=40, layer=LAYER),
    "pageable_copies": Fault(kind="pageable_copies", cost_ns=4_000_000, layer=LAYER),
    "small_kernels": Fault(kind="small_kernels", count=300, layer=LAYER),
    "slow_launches": Fault(kind="slow_launches", cost_ns=2_500_000, layer=LAYER),
    "gc": Fault(kind="gc", cost_ns=8_000_000, layer=LAYER),
    "leak": Fault(kind="leak", num_bytes=20_000_000, layer=LAYER),
    "slow_python": Fault(kind="slow_python", cost_ns=4_000_000, layer=LAYER),
    "recompilation": Fault(kind="recompilation", cost_ns=8_000_000, layer=LAYER),
    "float32": Fault(kind="float32", cost_ns=900_000, layer=LAYER),
    "float64": Fault(kind="float64", cost_ns=900_000, layer=LAYER),
    "blocked": Fault(kind="blocked", cost_ns=8_000_000, layer=LAYER),
}
ON_CPU = ("gc", "leak", "slow_python", "recompilation", "float64", "blocked")


def found_in(fault, **options):
    """Return the finding on a fault in a simulated run."""
    report = analyze_cached(replace(RUN, faults=(fault,), **options))[1]
    return next(finding for finding in report.findings if finding.kind == FINDINGS[fault.kind])


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_in_one_layer_names_its_module(kind):
    found = found_in(FAULTS[kind])
    assert found.where.modules == (MODULE,)
    assert f"in {MODULE}" in " ".join(describe_finding(found))
    assert found.to_dict()["where"]["modules"] == (MODULE,)


@pytest.mark.parametrize("kind", ON_CPU)
def test_a_fault_in_one_layer_names_its_module_without_a_device(kind):
    assert found_in(FAULTS[kind], has_device=False).where.modules == (MODULE,)


@pytest.mark.parametrize("kind", FAULTS)
def test_nothing_is_named_where_modules_were_not_recorded(kind):
    assert found_in(FAULTS[kind], has_modules=False).where.modules == ()


def test_recomputation_and_backward_count_for_the_module_of_the_forward_pass():
    assert found_in(FAULTS["float32"], has_recomputation=True).where.modules == (MODULE,)


def test_a_fault_in_all_layers_names_the_model_around_them():
    assert found_in(Fault(kind="float32", cost_ns=200_000)).where.modules == ("Model",)


@pytest.mark.parametrize("kind", ["gc", "blocked", "recompilation", "small_kernels", "pageable_copies", "leak"])
def test_a_fault_outside_of_the_model_names_no_module(kind):
    assert found_in(replace(FAULTS[kind], layer=None)).where.modules == ()


def test_modules_do_not_change_the_identity_of_a_finding():
    fault = FAULTS["float32"]
    assert found_in(fault).id == found_in(fault, has_modules=False).id


# -- of small operators on the CPU, in traces that are written here


def with_small_operators(path, name, module_of):
    """Write a trace of 8 steps, each with 900 small operators in 3 layers; return its findings."""
    events = []

    def add(category, name, begin, dur, **args):
        events.append({"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, "ts": begin, "dur": dur} | args)

    for step in range(8):
        begin = 10_000.0 * step
        add("user_annotation", f"ProfilerStep#{step}", begin, 9_990)
        add("module", "Model", begin + 10, 9_900, args={"class": "Model", "depth": 0})
        for layer in range(3):
            add("module", f"Model.layers.{layer}", begin + 20 + 3_000 * layer, 2_900, args={"class": "L", "depth": 2})
        for number in range(900):
            layer, within = module_of(number), number % 300
            add("cpu_op", name, begin + 30 + 3_000 * layer + 9 * within + (number // 300) * 3, 2)
    path.write_text(json.dumps({"traceEvents": events}), encoding="utf-8")
    return kinetoscope.analyze(path, cache=False).findings


@pytest.mark.parametrize("name", ["aten::item", "aten::add"])
@pytest.mark.parametrize(
    ("module_of", "named"), [(lambda _: 1, "Model.layers.1"), (lambda number: number // 300, "Model")]
)
def test_small_operators_name_the_module_that_calls_most_of_them(tmp_path, name, module_of, named):
    findings = with_small_operators(tmp_path / "rank0.json", name, module_of)
    found = next(finding for finding in findings if "Small" in finding.title)
    assert found.where.modules == (named,)
