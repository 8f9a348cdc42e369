"""Rule for exposed copies: transfers to the device stop the loop, or the device."""

import re
from collections.abc import Iterator
from dataclasses import replace

from kinetoscope.analysis.findings.diagnosis import Diagnosis
from kinetoscope.analysis.findings.evidence.run import Evidence
from kinetoscope.analysis.findings.evidence.window_modules import EXPOSED_COPIES
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.findings.rule import rule
from kinetoscope.analysis.replay.replay import Change
from kinetoscope.analysis.windows.kernel_names import COPY_OF_PINNED_MEMORY, COPY_TO_DEVICE
from kinetoscope.core.text.wording import format_ms

_INSTANT_SPEEDUP = 1e18
"""Speedup with which a copy takes no time."""

_ADVICE_ON_PINNING = (
    "Pin the source: `DataLoader(..., pin_memory=True)`. A copy from pinned memory is faster even if it blocks. "
)
_ADVICE = (
    "Overlap copies with kernels: `batch.to(device, non_blocking=True)`, and copy the next batch on a second stream "
    "during this step."
)


@rule("exposed_copy", requires=("gpu",))
def find_exposed_copy(evidence: Evidence) -> Iterator[Diagnosis]:
    """Diagnose copies from the CPU to the device."""
    copies = [row for row in evidence.rows.kernels if row.kind == "copy" and re.search(COPY_TO_DEVICE, row.name)]
    if not copies or evidence.gpu is None:
        return
    stalls, loader = evidence.stalls("copy"), evidence.loader
    copy_ns = max(stalls.total_ns, evidence.gpu.exposed_to_device_ns)
    pageable_ns = sum(row.total_ns for row in copies if "Pageable" in row.name)
    is_pinned = all(re.search(COPY_OF_PINNED_MEMORY, row.name) for row in copies)
    is_pinned |= loader is not None and loader.pins_memory
    is_of_stalls = stalls.total_ns >= evidence.gpu.exposed_to_device_ns
    modules = stalls.modules if is_of_stalls else evidence.modules.of_costs(EXPOSED_COPIES)
    faster = dict.fromkeys((row.name for row in copies), _INSTANT_SPEEDUP)
    yield Diagnosis(
        title=lambda cost_ns: f"Exposed copy: host-to-device transfers take {format_ms(cost_ns)} ms/step",
        advice=("" if is_pinned else _ADVICE_ON_PINNING) + _ADVICE,
        cost_ns=copy_ns,
        fix=Fix(Change(frozenset(["sync"]), faster), variant="only_copies_that_block"),
        where=replace(stalls.where(), modules=modules),
        evidence={"copy_ns": copy_ns, "pageable_ns": pageable_ns / max(1, len(evidence.rows.steps))},
        stalls="copy",
        is_on_gpu=True,
        is_at_line=True,
    )
