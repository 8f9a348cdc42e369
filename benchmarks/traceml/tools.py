"""Training runs under a tool, and the tool's report on them."""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median
from typing import Any

TOOLS = ("none", "traceml", "kinetoscope")
SWITCH = Path(__file__).parent / "switch.py"
PYTHON = Path(sys.executable)
BIN = PYTHON.parent
_NUM_WARM_UP_STEPS = 2  # warmup steps at the start
_STEPS_PER_BLOCK = 12  # steps
_TIMEOUT_S = 300

_COSTS = {
    "INPUT-BOUND": "input_wait_ms",
    "H2D-BOUND": "h2d_ms",
    "RESIDUAL-HEAVY": "residual_ms",
    "COMPUTE-BOUND": "compute_ms",
    "INPUT STRAGGLER": "score_numerator_ms",
    "COMPUTE STRAGGLER": "score_numerator_ms",
    "STRAGGLER": "score_numerator_ms",
}
"""Where TraceML's evidence has the milliseconds of what its verdict is about."""


@dataclass(frozen=True, kw_only=True)
class Training:
    """A training run and its arguments. ``num_recorded`` steps are recorded by ours."""

    script: str
    arguments: Sequence[str] = ()
    num_ranks: int = 1
    num_recorded: int = 40

    def with_arguments(self, *more: str) -> "Training":
        return replace(self, arguments=(*self.arguments, *more))


@dataclass(frozen=True)
class FinishedRun:
    """A finished training run: its exit code (128 and the signal's number, as in a shell), and its output."""

    tool: str
    out: Path
    exit_code: int
    printed: str

    def step_times_ms(self) -> list[float]:
        """Times from each request of a batch to the next one, of rank 0, without the first."""
        moments_ns = json.loads(self.out.with_name(f"{self.out.name}-rank0.json").read_text())
        return [(later - earlier) / 1e6 for earlier, later in pairwise(moments_ns)][_NUM_WARM_UP_STEPS:]

    def mean_step_ms(self) -> float:
        return fmean(self.step_times_ms())

    def typical_step_ms(self) -> float:
        """Return the median of the means of 12 steps each, in which what comes in every second or third step counts."""
        times = self.step_times_ms()
        return median(
            fmean(times[at : at + _STEPS_PER_BLOCK])
            for at in range(0, len(times) - _STEPS_PER_BLOCK + 1, _STEPS_PER_BLOCK)
        )


@dataclass(frozen=True, kw_only=True)
class ToolReport:
    """The first diagnosis of a tool for a run."""

    verdict: str
    sentence: str
    is_sure: bool
    num_steps: int
    step_ms: float | None = None
    evaluation_ms: float | None = None
    cost_ms: float | None = None
    saving_ms: float | None = None
    growth_kib: float | None = None
    text: str = field(default="", repr=False)

    def line_of(self, training: Training) -> str | None:
        """Return the line of the training's source that is named, if one is."""
        found = re.search(re.escape(training.script) + r":\d+", self.text)
        return found[0] if found else None


def start(tool: str, training: Training, out: Path, *, on_free_ports: bool = True) -> "subprocess.Popen[str]":
    """Start a training run. TraceML uses its default ports unless ``on_free_ports``."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "RECORDED_STEPS": str(training.num_recorded)}
    environment |= {"KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    arguments = [tool, str(out), training.script, *training.arguments]
    if tool == "traceml":
        ports = ["--aggregator-port", str(free_port()), "--master-port", str(free_port())] if on_free_ports else []
        options = [*ports, "--nproc-per-node", str(training.num_ranks)]
        command = traceml_command(SWITCH, out, options, arguments)
    else:
        command = _plain_command(training.num_ranks, arguments)
    return subprocess.Popen(
        command, env=environment, cwd=out.parent, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def finish(tool: str, out: Path, process: "subprocess.Popen[str]") -> FinishedRun:
    """Wait until a training run has ended."""
    printed, _ = process.communicate(timeout=_TIMEOUT_S)
    code = process.returncode
    return FinishedRun(tool, out, code if code >= 0 else 128 - code, printed)


def run_training(tool: str, training: Training, out: Path) -> FinishedRun:
    """Run a training script to its end; it must succeed."""
    ran = finish(tool, out, start(tool, training, out))
    if ran.exit_code:
        raise RuntimeError(f"{training.script} under {tool} ended with {ran.exit_code}:\n{ran.printed}")
    return ran


def _plain_command(num_ranks: int, arguments: Sequence[str]) -> list[str]:
    if num_ranks == 1:
        return [sys.executable, str(SWITCH), *arguments]
    options = [f"--nproc-per-node={num_ranks}", f"--master-port={free_port()}"]
    return [str(BIN / "torchrun"), *options, str(SWITCH), *arguments]


def traceml_command(script: Path, out: Path, options: Sequence[str], arguments: Sequence[str] = ()) -> list[str]:
    """Return ``traceml run`` with its defaults and ``options``; the run's logs are below those of all runs."""
    logs = ["--logs-dir", str(out.parent / "logs"), "--run-name", out.name]
    return [str(BIN / "traceml"), "run", str(script), *logs, *options, *(["--args", *arguments] if arguments else [])]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def read_report(ran: FinishedRun) -> ToolReport:
    """Return the tool's report on the run."""
    return _read_traceml_report(ran.out) if ran.tool == "traceml" else _read_kinetoscope_report(ran.out)


def traceml_summary(out: Path) -> Path:
    """Return the file in which TraceML's result is."""
    return out.parent / "logs" / out.name / "final_summary.json"


def _read_traceml_report(out: Path) -> ToolReport:
    text = traceml_summary(out).read_text()
    summary = json.loads(text)
    diagnosis = summary["primary_diagnosis"]
    status, evidence = diagnosis["status"], diagnosis["evidence"]
    return ToolReport(
        verdict=status,
        sentence=diagnosis["summary"],
        is_sure=diagnosis["severity"] in ("warn", "crit"),
        num_steps=evidence["steps_analyzed"],
        step_ms=summary["step_time"]["global"]["average"].get("step_time_ms"),
        cost_ms=evidence.get(_COSTS.get(status, "")),
        text=text,
    )


def _read_kinetoscope_report(out: Path) -> ToolReport:
    """Return the report of ``kinetoscope summary`` on the traces of a run."""
    report = json.loads(kinetoscope("summary", "--json", str(out)).stdout)
    steps, num_steps = report["steps"], report["run"]["num_steps"]
    last_ns = steps[-1]["begin_ns"] + steps[-1]["duration_ns"]
    nothing = ToolReport(
        verdict="",
        sentence="",
        is_sure=False,
        num_steps=num_steps,
        step_ms=(last_ns - steps[0]["begin_ns"]) / 1e6 / num_steps,
        evaluation_ms=sum(map(_sum_evaluation_ns, steps)) / 1e6 / num_steps,
    )
    return _add_finding(nothing, report["findings"][0]) if report["findings"] else nothing


def _sum_evaluation_ns(step: Mapping[str, Any]) -> int:
    return (step["evaluation_ns"] or 0) + (step["evaluation_inside_ns"] or 0)


def _add_finding(tool_report: ToolReport, finding: Mapping[str, Any]) -> ToolReport:
    return replace(
        tool_report,
        verdict=finding["kind"],
        sentence=finding["title"],
        is_sure=finding["confidence"] == "high",
        cost_ms=_in_ms(finding["cost_ns_per_step"]),
        saving_ms=_in_ms(finding["saving_ns_per_step"]),
        growth_kib=finding["evidence"]["bytes_per_step"] / 1024 if finding["kind"] == "memory_growth" else None,
        text=" ".join([finding["title"], finding["advice"], *finding["where"]["lines"]]),
    )


def kinetoscope(*arguments: str) -> "subprocess.CompletedProcess[str]":
    """Run our command."""
    command = [str(BIN / "kinetoscope"), *arguments]
    return subprocess.run(command, text=True, capture_output=True, timeout=_TIMEOUT_S, check=False)


def traceml(*arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run TraceML's command in a folder."""
    command = [str(BIN / "traceml"), *arguments]
    return subprocess.run(command, text=True, capture_output=True, timeout=_TIMEOUT_S, check=False, cwd=folder)


def _in_ms(value_ns: int | None) -> float | None:
    return None if value_ns is None else value_ns / 1e6
