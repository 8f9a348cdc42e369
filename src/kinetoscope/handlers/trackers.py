"""Reports to experiment trackers: the steps of each window, and at the end the findings and the report.

All calls come from the writer thread, or after the end of training.
"""

import importlib
import logging
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any, Protocol

from kinetoscope.core.job.timestamp import plain_count
from kinetoscope.errors import SettingsError
from kinetoscope.handlers.top_finding import TopFindingSearch
from kinetoscope.pulse.layout import Phase
from kinetoscope.pulse.pulse_recorder import StepTimes, read_device_bytes, read_resident_bytes
from kinetoscope.recording.run.plugin_api import ProfiledState, RunContext
from kinetoscope.recording.window.cycle import Cycle
from kinetoscope.recording.window.trace_handler import TraceHandler

_log = logging.getLogger("kinetoscope")
_PREFIX = "kinetoscope"
_NS_PER_MS, _BYTES_PER_GIB = 1e6, 2**30
_NO_FINDINGS = "No findings."


class Tracker(Protocol):
    """One tracker's run. Its methods raise the tracker's errors."""

    def log_metrics(self, metrics: dict[str, float], batch: int) -> None:
        """Log the numbers of a window that ended after ``batch`` batches."""
        ...

    def log_findings(self, findings: str, report: Path, batch: int) -> None:
        """Log the findings as text, and the report if the tracker keeps files."""
        ...


class WandbRun:
    """A run of W&B. Metrics join the row that the training logs next, so each of its own rows stays one."""

    def __init__(self, run: Any) -> None:
        self._run = run

    def log_metrics(self, metrics: dict[str, float], batch: int) -> None:
        """Log metrics into the row that the training logs next."""
        self._run.log(metrics | {f"{_PREFIX}/batch": batch}, commit=False)

    def log_findings(self, findings: str, report: Path, batch: int) -> None:
        """Log the findings into the summary, and the report as an artifact."""
        artifact = importlib.import_module("wandb").Artifact(f"{_PREFIX}-{self._run.id}", type=f"{_PREFIX}-report")
        artifact.add_file(str(report), name=report.name)
        with artifact.new_file("findings.txt", encoding="utf-8") as file:
            file.write(findings)
        self._run.summary[f"{_PREFIX}/findings"] = findings
        self._run.log_artifact(artifact)


class MLflowRun:
    """A run of MLflow, on the server or in the folder that is MLflow's when this is made."""

    def __init__(self, run: Any) -> None:
        self._id: str = run.info.run_id
        self._client: Any = importlib.import_module("mlflow").MlflowClient()

    def log_metrics(self, metrics: dict[str, float], batch: int) -> None:
        """Log metrics at a step."""
        kind: Any = importlib.import_module("mlflow.entities").Metric
        now_ms = time.time_ns() // 1_000_000
        self._client.log_batch(self._id, metrics=[kind(name, value, now_ms, batch) for name, value in metrics.items()])

    def log_findings(self, findings: str, report: Path, batch: int) -> None:
        """Log the findings and the report as artifacts."""
        self._client.log_text(self._id, findings, f"{_PREFIX}/findings.txt")
        self._client.log_artifact(self._id, str(report), _PREFIX)


class TensorBoardWriter:
    """A SummaryWriter of TensorBoard, which keeps no files: the findings are text."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer

    def log_metrics(self, metrics: dict[str, float], batch: int) -> None:
        """Write each metric as a scalar."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, batch)
        self._writer.flush()

    def log_findings(self, findings: str, report: Path, batch: int) -> None:
        """Write the findings as text."""
        del report
        self._writer.add_text(f"{_PREFIX}/findings", findings.replace("\n", "  \n"), batch)
        self._writer.flush()


_KINDS = {"wandb": WandbRun, "mlflow": MLflowRun, "torch": TensorBoardWriter, "tensorboardX": TensorBoardWriter}
_NEEDED = {"wandb": "log_artifact", "mlflow": "info", "torch": "add_scalar", "tensorboardX": "add_scalar"}


def tracker_of(run: Any) -> Tracker:
    """Return the tracker of a W&B run, an MLflow run or a SummaryWriter; raise `SettingsError` otherwise."""
    packages = [kind.__module__.partition(".")[0] for kind in type(run).__mro__]
    package = next((name for name in packages if name in _KINDS), None)
    if package is None or not hasattr(run, _NEEDED[package]):
        raise SettingsError(
            "log_to takes what wandb.init() or mlflow.start_run() returned, a SummaryWriter of TensorBoard, or a list "
            f"of them; not {run!r}."
        )
    return _KINDS[package](run)


class Trackers(TraceHandler):
    """The trackers of a run, as a handler: it gets each window after the window's trace was written.

    An error of one is reported once, and it is called again at the next window.
    """

    def __init__(self, log_to: Any) -> None:
        runs = log_to if isinstance(log_to, list | tuple) else [log_to]
        self._trackers = [tracker_of(run) for run in runs]
        self._failed: set[int] = set()
        self._run: RunContext | None = None
        self._batch = 0

    def init(self, state: ProfiledState, logger: object) -> None:
        """Store the run whose steps are logged."""
        self._run = state.profiler.run

    def process_cycle(self, cycle: Cycle) -> None:
        """Log the means of the window's steps without its warm-up, from the pulse, and current memory.

        A window without such a step is not logged.
        """
        if self._run is None or cycle.first_active is None:
            return
        batch = plain_count(cycle.timestamp.batch)
        if steps := self._run.step_times(cycle.first_active, batch):
            self._batch, metrics = batch, metrics_of(steps)
            for tracker in self._trackers:
                self._call(tracker, "log_metrics", metrics, batch)

    def log_findings(self, findings: Sequence[str], report: Path) -> None:
        """Log the findings, the top one first, and the report, at the run's end."""
        text = "\n\n".join(findings) or _NO_FINDINGS
        for tracker in self._trackers:
            self._call(tracker, "log_findings", text, report, self._batch)

    def _call(self, tracker: Tracker, method: str, *arguments: Any) -> None:
        try:
            getattr(tracker, method)(*arguments)
        except Exception as error:  # a server that is away, a run that was finished
            if id(tracker) not in self._failed:
                self._failed.add(id(tracker))
                _log.warning(
                    "%s of log_to failed: %s: %s",
                    type(tracker).__name__,
                    type(error).__name__,
                    error,
                )


class LoggedTopFinding(TopFindingSearch):
    """The search for the top finding, with a report, whose result is logged to ``trackers``."""

    def __init__(self, trackers: Trackers) -> None:
        super().__init__(writes_report=True)
        self._trackers = trackers

    def find(self, folder: Path, timeout_s: float, *, is_watching: bool = False) -> str:
        """Find the top finding, and log all findings to the trackers."""
        failure = super().find(folder, timeout_s, is_watching=is_watching)
        if self.report is not None:
            self._trackers.log_findings(self.findings, self.report)
        return failure


def metrics_of(steps: Sequence[StepTimes]) -> dict[str, float]:
    """Return the means of one step or more in milliseconds, and memory in GiB, by name.

    Unknown values are left out.
    """
    metrics = {f"{_PREFIX}/step_ms": fmean(duration_ns for duration_ns, _ in steps) / _NS_PER_MS}
    for phase in Phase:
        known = [time_ns for _, by_phase in steps if (time_ns := by_phase[phase]) is not None]
        if len(known) == len(steps):
            metrics[f"{_PREFIX}/{phase.name.lower()}_ms"] = fmean(known) / _NS_PER_MS
    for name, num_bytes in (("memory_gib", read_resident_bytes()), ("device_memory_gib", read_device_bytes())):
        if num_bytes is not None:
            metrics[f"{_PREFIX}/{name}"] = num_bytes / _BYTES_PER_GIB
    return metrics
