"""Copies to the device: only these are a copy that holds the step up, whatever a device's recorder calls them."""

from dataclasses import replace

import pytest

import kinetoscope
from trainsim import planted_settings
from trainsim.analyses import write_changed

NVIDIA, AMD = "Memcpy HtoD (Pageable -> Device)", "Memcpy HtoD (Host -> Device)"
INTEL = "Memcpy M2D (MEMORY(Unknown) -> DEVICE)"
WITHIN_THE_DEVICE = "Memcpy DtoD (Device -> Device)"


def copies_of(report):
    return {row.name for row in report.kernels if row.kind == "copy"}


def report_with(folder, name, *kinds, category="gpu_memcpy"):
    """Return the report on a run whose copies to the device have this name."""

    def rename(trace):
        for event in trace["traceEvents"]:
            if event["name"].startswith("Memcpy HtoD"):
                event.update(name=name, cat=category)

    settings = replace(planted_settings(0, "pageable_copies", *kinds), num_ranks=1, num_steps=9)
    return kinetoscope.analyze(write_changed(rename, settings, folder), cache=False)


@pytest.mark.parametrize(
    ("name", "category"),
    [(NVIDIA, "gpu_memcpy"), (AMD, "gpu_memcpy"), (INTEL, "gpu_memcpy"), ("MEMORY_COPY_HOST_TO_DEVICE", "kernel")],
)
def test_a_copy_to_the_device_is_known_by_each_name_that_kineto_gives_it(tmp_path, name, category):
    report = report_with(tmp_path, name, category=category)
    first = report.findings[0]
    assert (first.kind, first.confidence) == ("exposed_copy", "high")
    assert name in copies_of(report)


@pytest.mark.parametrize("name", [WITHIN_THE_DEVICE, "Memcpy DtoH (Device -> Host)"])
def test_copies_elsewhere_are_no_reason_to_pin_memory_even_where_nothing_is_replayed(tmp_path, name):
    report = report_with(tmp_path / "elsewhere", name, "idle_gaps")
    assert any(note.startswith("The estimated savings of findings are unknown") for note in report.run["notes"])
    assert "exposed_copy" not in [finding.kind for finding in report.findings]
    assert "exposed_copy" in [finding.kind for finding in report_with(tmp_path / "to", AMD, "idle_gaps").findings]


@pytest.mark.parametrize(
    ("name", "is_advised"), [(AMD, True), (NVIDIA, True), (NVIDIA.replace("Pageable", "Pinned"), False)]
)
def test_memory_that_is_pinned_need_not_be_pinned_again(tmp_path, name, is_advised):
    (found,) = (one for one in report_with(tmp_path, name, "idle_gaps").findings if one.kind == "exposed_copy")
    assert ("pin_memory=True" in found.advice) == is_advised
    assert "non_blocking=True" in found.advice
