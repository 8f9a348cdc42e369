"""Training programs that `kinetoscope try` measures: the prediction of the top finding, and the gain of its fixes."""

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

import kinetoscope
from kinetoscope.analysis.findings.finding import Finding
from kinetoscope.formats.experiments import KINDS_WITH_VARIANTS, Experiment, ExperimentRow
from support.validation.table import format_optional_ms

PROGRAMS = Path(__file__).parent / "programs"
NAMES = (
    *("vision", "tabular", "language_model", "recurrent", "adversarial"),
    *("policy", "autoencoder", "two_ranks", "objects", "logged"),
)
NUMS_OF_RANKS = dict.fromkeys(NAMES, 1) | {"two_ranks": 2}
_TOLERANCE = 0.05
"""A prediction within this share of the step of the measured interval is right."""

_MIN_MISLEADING = 0.05
"""A finding that predicts less of a step is not called misleading."""

_VERDICT_LABELS = {"same": "no significant change", "unsure": "inconclusive", "not_applied": "not applied"}


@dataclass(frozen=True, kw_only=True)
class TriedProgram:
    """A program, its top finding that a variant may fix (else its top finding), and what `kinetoscope try` measured."""

    name: str
    experiment: Experiment
    finding: Finding | None

    @property
    def rows(self) -> list[ExperimentRow]:
        """The measured variants without pairs, the best first."""
        return [row for row in self.experiment.rows if row.change is not None and len(row.variants) == 1]

    @property
    def verdict(self) -> str:
        """Judgment of the top finding by the measurement."""
        return judge(self.finding, self.rows)

    def cells(self) -> list[str]:
        """The cells of the table after the name."""
        step_ns, finding = self.experiment.step_ns, self.finding
        measured = finding.measured if finding is not None else None
        gain = ""
        if measured is not None and step_ns is not None:
            low, high = (-change * step_ns / 1e6 for change in reversed(measured.interval))
            gain = f"{-measured.change * step_ns / 1e6:.1f} ({low:.1f} to {high:.1f})"
        return [
            _read_kind(self.name),
            format_optional_ms(step_ns),
            "none" if finding is None else f"`{finding.kind}`, {finding.confidence}",
            format_optional_ms(None if finding is None else predict_saving_ns(finding)),
            gain,
            self.verdict,
            "; ".join(map(_describe_row, self.experiment.rows)),
        ]


def try_program(name: str, folder: Path, *, max_minutes: float, num_rounds: int = 2) -> TriedProgram:
    """Measure a program by `kinetoscope try`, which records it first and tries what its findings suggest."""
    out = folder / name
    options = ["--yes", "--json", "-o", str(out), "--rounds", str(num_rounds), "--max-minutes", f"{max_minutes:.2f}"]
    words = [sys.executable, str(PROGRAMS / f"{name}.py")]
    if (num_ranks := NUMS_OF_RANKS[name]) > 1:
        words[1:1] = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(num_ranks)]
    experiment = run_try([*options, "--", *words], folder, timeout_s=60 * max_minutes + 120)
    findings = kinetoscope.analyze(out, cache=False).findings
    return TriedProgram(name=name, experiment=experiment, finding=choose_finding(findings))


def run_try(
    words: Sequence[str], folder: Path, *, timeout_s: float, variables: dict[str, str] | None = None
) -> Experiment:
    """Return the result of `kinetoscope try` with these words; its progress goes to standard error."""
    command = [sys.executable, "-m", "kinetoscope", "try", *words]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **(variables or {})},
        stdout=subprocess.PIPE,
        timeout=timeout_s,
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=Experiment)


def choose_finding(findings: Sequence[Finding]) -> Finding | None:
    """Return the first finding that a variant may fix; else the first one."""
    return next((one for one in findings if one.kind in KINDS_WITH_VARIANTS), next(iter(findings), None))


def predict_saving_ns(finding: Finding) -> float | None:
    """Return the saving per step that a finding predicts for settings, such as workers: all that variants change."""
    if not finding.saving_ns_per_step or not finding.saving_share or finding.reachable_share is None:
        return finding.saving_ns_per_step
    return finding.saving_ns_per_step * finding.reachable_share / finding.saving_share


def judge(finding: Finding | None, rows: Sequence[ExperimentRow]) -> str:
    """Return the judgment of a finding by the measured rows; without a finding, a fix may have been missed."""
    if not rows:
        return "not measured: the time was over"
    faster = [row.label for row in rows if row.verdict == "faster"]
    if finding is None:
        return f"missed: {faster[0]} gains" if faster else "right: no variant gains"
    if finding.measured is None:
        return "no variant fixes it"
    measured, predicted = finding.measured, finding.reachable_share
    if measured.verdict in ("slower", "same") and (predicted or 0) >= _MIN_MISLEADING:
        what = "makes it slower" if measured.verdict == "slower" else "changes nothing"
        return f"misleading: the best variant {what}"
    if measured.verdict != "faster":
        return _VERDICT_LABELS.get(measured.verdict, measured.verdict)
    if predicted is None:
        return "right, without a prediction"
    low, high = (-change for change in reversed(measured.interval))
    if predicted < low - _TOLERANCE:
        return "right, gains more than predicted"
    return "right" if predicted <= high + _TOLERANCE else "gains less than predicted"


def _describe_row(row: ExperimentRow) -> str:
    verdict = _VERDICT_LABELS.get(row.verdict, row.verdict)
    change = "" if row.change is None else f" {100 * row.change:+.0f} %"
    return f"`{row.label}`{change} {verdict}"


def _read_kind(name: str) -> str:
    """Return the kind of training in the program's docstring, which ends with a colon."""
    return (PROGRAMS / f"{name}.py").read_text(encoding="utf-8").removeprefix('"""').partition(":")[0]
