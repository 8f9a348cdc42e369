"""Trials of faulty programs: the prediction of the top finding, and the measured saving of the fix.

The fix is a variant of `kinetoscope try` where there is one. Else it is an edit, with ``--fixed``, and faulty and fixed
runs alternate.
"""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

import kinetoscope
from kinetoscope.analysis.findings.finding import Finding
from kinetoscope.formats.experiments import Experiment
from support.validation.table import format_optional_ms
from support.validation.tried_programs import run_try

SCRIPTS = Path(__file__).parent / "scripts"
NUM_PAIRS, NUM_UNPROFILED_PAIRS = 3, 1
MAX_TRY_MINUTES = 0.8
MAX_RATIO = 1.25
"""Largest ratio of prediction and measurement, either way, that the table calls right."""
TIMEOUT_S = 400  # on a busy machine
FIRST_TIMED = 3
"""The step before it contains the start of torch's profiler."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A script of `SCRIPTS`, and the ``kind`` of the finding that names its fault. ``has_line`` and ``is_saved``:
    whether the finding names a line, and predicts a saving. A fault in some steps only makes no difference to the
    median step. If it comes in every ``period``-th step, a run counts with the mean of the median steps of each
    position in the period; if ``in_some_steps`` without a fixed period, with its mean step. Some faults are of other
    ``kinds`` on other machines, such as an fsync on a disk that is as fast as memory. The finding's ``advice`` has
    these words in it. ``variant`` of `kinetoscope try` is the fix; without one, the script has it."""

    script: str
    kind: str
    has_line: bool = True
    is_saved: bool = True
    in_some_steps: bool = False
    period: int = 1
    num_ranks: int = 1
    kinds: tuple[str, ...] = ()
    advice: str = ""
    variant: str = ""

    @property
    def all_kinds(self) -> tuple[str, ...]:
        """The kinds of the findings that name it, on any machine."""
        return (self.kind, *self.kinds)

    @property
    def lines(self) -> set[str]:
        """The faulty lines, as findings name them."""
        text = (SCRIPTS / f"{self.script}.py").read_text(encoding="utf-8")
        return {f"{self.script}.py:{at}" for at, line in enumerate(text.splitlines(), 1) if line.endswith("# FAULT")}


FAULTS = (
    Fault(script="slow_getitem", kind="input_bound", advice="DataLoader(..., num_workers="),
    Fault(script="few_workers", kind="input_bound", advice="DataLoader(..., num_workers=", variant="num_workers=2"),
    Fault(script="python_loss", kind="python_overhead", advice="Replace loops over elements"),
    # A rank that sleeps is blocked. Where the replay of that has no late rank left, it is the finding.
    Fault(
        script="late_rank",
        kind="straggler",
        kinds=("blocked",),
        period=3,
        num_ranks=2,
        advice="CPU work that other ranks do not do",
    ),
    Fault(
        script="gc_pressure",
        kind="garbage_collection",
        in_some_steps=True,
        advice="Allocate fewer objects at",
        variant="relaxed_gc",
    ),
    Fault(script="recompilation", kind="recompilation", in_some_steps=True, advice="Give each batch the same shape"),
    Fault(script="graph_leak", kind="memory_growth", is_saved=False, advice="Keep numbers, not tensors"),
    Fault(script="hook_leak", kind="memory_growth", is_saved=False, advice="Keep numbers, not tensors"),
    Fault(script="float64", kind="float64", has_line=False, is_saved=False, advice="float32"),
    Fault(script="tiny_operators", kind="small_kernels", is_saved=False, advice="model = torch.compile(model)"),
    Fault(script="checkpoints", kind="python_overhead", kinds=("blocked",), in_some_steps=True, advice="async_save"),
    Fault(script="fsync", kind="blocked", kinds=("python_overhead",), advice="os.fsync()"),
    Fault(script="held_lock", kind="blocked", advice="hold the lock for less time"),
    Fault(script="waiting_loader", kind="input_bound", advice="Workers wait in parallel", variant="num_workers=4"),
    Fault(
        script="new_loaders", kind="input_bound", has_line=False, in_some_steps=True, advice="persistent_workers=True"
    ),
    Fault(
        script="oversubscribed", kind="processor_contention", has_line=False, is_saved=False, advice="set_num_threads"
    ),
)


@dataclass(frozen=True, kw_only=True)
class Trial:
    """Measurements of a fault.

    Attributes:
        found: Findings of each faulty run.
        steps_ns: Steps of runs, by ``("faulty" or "fixed", "recorded" or "unprofiled")``.
        printed: Output of the faulty runs.
        experiment: Result of `kinetoscope try`, if a variant is the fix.
    """

    fault: Fault
    found: list[list[Finding]]
    steps_ns: dict[tuple[str, str], list[float]]
    printed: list[str]
    experiment: Experiment | None = None

    def gain_ns(self, how: str = "recorded") -> float:
        """Measured saving per step: by `kinetoscope try`, else the median faulty run minus the median fixed run."""
        if self.experiment is not None:
            (row,) = self.experiment.rows
            assert row.change is not None, row.reason
            return -row.change * (row.step_before_ns or 0.0)
        return median(self.steps_ns["faulty", how]) - median(self.steps_ns["fixed", how])

    @property
    def top_findings(self) -> list[Finding | None]:
        """The first finding of each faulty run."""
        return [findings[0] if findings else None for findings in self.found]

    @property
    def predicted_ns(self) -> float | None:
        """Predicted saving of the top finding in the median faulty run; None without a prediction."""
        predicted = [_predict_saving_ns(self.fault, findings) for findings in self.found]
        known = [saving for saving in predicted if saving is not None]
        return median(known) if len(known) == len(predicted) else None

    @property
    def are_named(self) -> bool:
        """The top finding of each faulty run is of the right kind."""
        return all(first is not None and first.kind in self.fault.all_kinds for first in self.top_findings)

    @property
    def line(self) -> str | None:
        """The line that the first findings name first; None if they differ in whether it is at fault, or it is not."""
        lines = [first.where.lines[0].rpartition("/")[2] for first in self.top_findings if first and first.where.lines]
        return lines[0] if len(lines) == len(self.top_findings) and set(lines) <= self.fault.lines else None

    @property
    def verdict(self) -> str:
        """Judgment of the top finding by the measurement."""
        if not self.are_named:
            return "wrong finding"
        if self.fault.has_line and self.line is None:
            return "wrong line"
        if self.predicted_ns is None:
            return "right, without a prediction"
        ratio = self.predicted_ns / self.gain_ns()
        if 1 / MAX_RATIO <= ratio <= MAX_RATIO:
            return "right"
        return "right, gains more than predicted" if 0 < ratio < 1 else "gains less than predicted"

    def cells(self) -> list[str]:
        """The cells of the table after the name."""
        predicted_ns, gained_ns = self.predicted_ns, self.gain_ns()
        kinds = dict.fromkeys(first.kind if first else "none" for first in self.top_findings)
        step_ns = sorted(self.steps_ns["faulty", "recorded"])[len(self.top_findings) // 2]
        return [
            format_optional_ms(step_ns),
            ", ".join(f"`{kind}`" for kind in kinds),
            f"`{self.line}`" if self.line else "not named",
            format_optional_ms(predicted_ns),
            format_optional_ms(gained_ns),
            "" if predicted_ns is None else f"{predicted_ns / gained_ns:.2f}",
            format_optional_ms(self.gain_ns("unprofiled")),
            f"`try`, `{self.fault.variant}`" if self.fault.variant else "edit",
            self.verdict,
        ]


def try_fault(fault: Fault, folder: Path) -> Trial:
    """Measure a fault: with `kinetoscope try`, or by runs A B A B A B, A with the fault and B fixed."""
    runs = [(number, "recorded") for number in range(NUM_PAIRS)]
    states = ("faulty",) if fault.variant else ("faulty", "fixed")
    if not fault.variant:
        runs += [(number, "unprofiled") for number in range(NUM_UNPROFILED_PAIRS)]
    steps_ns: dict[tuple[str, str], list[float]] = {}
    printed: list[str] = []
    for number, how in sorted(runs):
        for state in states:
            out = folder / f"{state}-{how}-{number}"
            output = run_training(fault.script, out, *_options(state, how), num_ranks=fault.num_ranks)
            printed += [output] if state == "faulty" else []
            steps_ns.setdefault((state, how), []).append(_step_ns(fault, out))
    but_for = "" if fault.kind == "processor_contention" else "processor_contention"
    found = [findings_of(folder / f"faulty-recorded-{number}", but_for) for number in range(NUM_PAIRS)]
    experiment = _try_variant(fault, folder) if fault.variant else None
    return Trial(fault=fault, found=found, steps_ns=steps_ns, printed=printed, experiment=experiment)


def _try_variant(fault: Fault, folder: Path) -> Experiment:
    """Measure the variant on the faulty script, which runs for few steps: those after the warm-up count."""
    options = ["--yes", "--json", "--fix", fault.variant, "-o", str(folder / "try"), "--rounds", "2"]
    options += ["--max-minutes", str(MAX_TRY_MINUTES)]
    words = [sys.executable, str(SCRIPTS / f"{fault.script}.py"), str(folder / "tried"), "--unprofiled"]
    return run_try([*options, "--", *words], folder, timeout_s=TIMEOUT_S, variables=_VARIABLES)


def _predict_saving_ns(fault: Fault, findings: list[Finding]) -> float | None:
    """The saving of the first finding. A call that waits for half of its time and runs for the other half has two
    findings, and what they advise is the same: then it is that of both."""
    if not findings or (first := findings[0]).saving_ns_per_step is None:
        return None
    lines = first.where.lines[:1]
    same = [one for one in findings[1:] if lines and one.kind in fault.all_kinds and one.where.lines[:1] == lines]
    return sum(one.saving_ns_per_step or 0 for one in (first, *same))


def _options(state: str, how: str) -> list[str]:
    return [f"--{option}" for option in (state, how) if option in ("fixed", "unprofiled")]


def run_training(script: str, out: Path, *options: str, num_ranks: int = 1) -> str:
    """Run a training script on all of its ranks; return the output of rank 0."""
    command = [sys.executable, str(SCRIPTS / f"{script}.py"), str(out), *options]
    size = str(num_ranks)
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": size} for rank in range(num_ranks)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    started = [subprocess.Popen(command, env=_ENVIRONMENT | rank, **pipes) for rank in ranks]
    try:
        output = [process.communicate(timeout=TIMEOUT_S)[0] for process in started]
    finally:
        for process in started:
            process.kill()  # no rank outlives a test that fails
    for process, text in zip(started, output, strict=True):
        assert process.returncode == 0, text
    return output[0]


_STEADY = {"MALLOC_MMAP_THRESHOLD_": "4000000000", "MALLOC_TRIM_THRESHOLD_": "4000000000"}
"""Memory that is freed stays with the process. Else it is random in which runs each step requests it from the kernel:
the same step took 28 ms in one run and 42 in another."""
_VARIABLES = _STEADY | {"OMP_NUM_THREADS": "1", "KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR"}
_ENVIRONMENT = os.environ | _VARIABLES


def _step_ns(fault: Fault, out: Path) -> float:
    """Return a step of a run by the training's own clock, from the request of a batch to that of the next one."""
    moments = json.loads(out.with_name(f"{out.name}-rank0.json").read_text())
    steps = [later - one for one, later in zip(moments[FIRST_TIMED:], moments[FIRST_TIMED + 1 :], strict=False)]
    if fault.in_some_steps:
        return fmean(steps)
    return fmean(median(steps[place :: fault.period]) for place in range(fault.period))


def findings_of(run: Path, but_for: str = "") -> list[Finding]:
    """Return the findings in a run that was recorded, but for those of a kind that is of what else the machine does."""
    return [finding for finding in kinetoscope.analyze(run, cache=False).findings if finding.kind != but_for]
