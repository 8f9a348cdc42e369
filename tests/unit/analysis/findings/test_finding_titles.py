"""Titles and advice of findings: the field's term first, within a line, and advice that torch follows."""

import re
from pathlib import Path

import pytest

import kinetoscope.analysis.findings as findings
from kinetoscope.analysis.findings.titles import MAX_TITLE, add_detail, format_rate
from trainsim import FINDINGS, planted_settings
from trainsim.analyses import analyze_cached

DIAGNOSES = {
    "input_bound": "Input-bound: ",
    "host_bound": "Launch-bound: ",
    "python_overhead": "Python overhead: ",
    "synchronisation": "Host-device sync: ",
    "exposed_communication": "Exposed communication: ",
    "exposed_copy": "Exposed copy: ",
    "straggler": "Straggler",
    "small_kernels": "Small kernels: ",
    "idle_gaps": "Unexplained GPU idle gaps: ",
    "garbage_collection": "GC pauses: ",
    "recompilation": "Recompilation: ",
    "float32_matmul": "float32 matmuls",
    "float64": "float64 compute: ",
    "blocked": "Blocked: ",
    "processor_contention": "CPU contention: ",
    "memory_growth": "Memory leak: ",
    "profiler_cost": "Profiler overhead: ",
}
SOURCES = "".join(path.read_text() for path in Path(findings.__file__).parent.rglob("*.py"))


@pytest.mark.parametrize("fault", FINDINGS)
def test_a_title_starts_with_the_diagnosis_and_has_a_quantity_per_step(fault):
    kind = FINDINGS[fault]
    assert kind in DIAGNOSES, f"Add the first words of the titles of {kind} to DIAGNOSES."
    title = next(found.title for found in analyze_cached(planted_settings(0, fault))[1].findings if found.kind == kind)
    assert title.startswith(DIAGNOSES[kind])
    assert re.search(r"\d.*(/step|step)", title)
    assert len(title) <= MAX_TITLE


def test_a_detail_that_does_not_fit_is_left_out():
    assert add_detail("a" * 70, "b" * 10) == "a" * 70 + "b" * 10
    assert add_detail("a" * 70, "b" * 11) == "a" * 70


def test_a_rate_has_two_digits_below_ten():
    assert list(map(format_rate, [0.125, 1, 9.94, 9.96, 1234.5])) == ["0.12", "1", "9.9", "10", "1,234"]


@pytest.mark.parametrize(
    "mistake",
    [
        r"foreach=True",  # torch's default where it helps
        r"drop_last=True.{0,40}(every|each) rank",  # DistributedSampler pads, so counts are equal anyway
        r"PYTORCH_CUDA_ALLOC_CONF=",  # deprecated since torch 2.9
    ],
)
def test_advice_has_no_mistake_that_an_expert_would_spot(mistake):
    assert not re.search(mistake, SOURCES)
