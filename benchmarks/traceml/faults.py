"""Rules that judge whether a tool reports a run's fault, its line, its cost, and the saving of the fix."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.traceml.tools import ToolReport, Training, read_report, run_training

_RIGHT_WITHIN = 0.2


@dataclass(frozen=True)
class Fault:
    """A training run with a fault. ``names`` are verdicts that name it, ``buckets`` those that only name its area."""

    what: str
    training: Training
    names: Sequence[str]
    buckets: Sequence[str] = ()
    is_leak: bool = False  # then its cost is in KiB per step, not ms, and the fix saves no time

    @property
    def unit(self) -> str:
        return "KiB" if self.is_leak else "ms"


_PYTHON = ("python_overhead",)
_STRAGGLERS = ("straggler", "INPUT STRAGGLER", "COMPUTE STRAGGLER", "STRAGGLER")
_GROWTH = ("memory_growth", "MEMORY CREEP", "MEMORY RISING")
_RESIDUAL = ("RESIDUAL-HEAVY",)

FAULTS = [
    Fault("slow `__getitem__`", Training(script="slow_getitem.py"), ["input_bound", "INPUT-BOUND"]),
    Fault("a rank late in every third step", Training(script="late_rank.py", num_ranks=2), _STRAGGLERS),
    Fault("512 `.item()` a step", Training(script="many_items.py"), (*_PYTHON, "small_kernels"), _RESIDUAL),
    Fault("a loss in a Python loop", Training(script="python_loss.py"), _PYTHON, _RESIDUAL),
    Fault("garbage collections", Training(script="gc_pressure.py"), ["garbage_collection"], _RESIDUAL),
    Fault("recompilations", Training(script="recompilation.py"), ["recompilation"], _RESIDUAL),
    Fault("a leak of graphs", Training(script="graph_leak.py"), _GROWTH, is_leak=True),
    Fault("20 ms of logging between steps", Training(script="slow_log.py"), _PYTHON, _RESIDUAL),
]

VALIDATION = Fault("evaluation", Training(script="validation.py"), [])


@dataclass(frozen=True)
class Judgement:
    """Report of a tool on a fault.

    Attributes:
        gain: Measured saving per step of the fix, without a tool.
        loop_ms: Time of a step of the loop under this tool.
    """

    fault: Fault
    report: ToolReport
    gain: float
    loop_ms: float

    @property
    def cost(self) -> float | None:
        return self.report.growth_kib if self.fault.is_leak else self.report.cost_ms

    @property
    def share_of_loop(self) -> float:
        """Share of the loop's time that the tool's steps cover."""
        return (self.report.step_ms or 0) / self.loop_ms

    @property
    def is_named(self) -> bool:
        return self.report.verdict in self.fault.names

    @property
    def marks(self) -> dict[str, int]:
        """Score of the tool; more is better."""
        return {
            "verdict": 2 * self.is_named or self.report.verdict in self.fault.buckets,
            "line": self.line != "no",
            "cost": self.is_cost_right,
            "saving": self.is_saving_right,
        }

    @property
    def verdict(self) -> str:
        quoted = f'"{self.report.verdict or "nothing"}"'
        if self.is_named:
            return quoted
        return f"{quoted}: where to look" if self.report.verdict in self.fault.buckets else f"{quoted}: no"

    @property
    def line(self) -> str:
        return self.report.line_of(self.fault.training) or "no"

    @property
    def is_cost_right(self) -> bool:
        return self._is_right(self.cost)

    @property
    def is_saving_right(self) -> bool:
        return self.report.saving_ms is None if self.fault.is_leak else self._is_right(self.report.saving_ms)

    def _is_right(self, value: float | None) -> bool:
        return value is not None and abs(value - self.gain) <= _RIGHT_WITHIN * self.gain


def judge(fault: Fault, folder: Path) -> dict[str, Judgement]:
    """Run the training fixed, with the fault, and with the fault under each tool."""
    name = Path(fault.training.script).stem
    fixed = run_training("none", fault.training.with_arguments("--fixed"), folder / f"{name}-fixed")
    theirs = run_training("traceml", fault.training, folder / f"{name}-traceml")
    faulty = run_training("none", fault.training, folder / f"{name}-none")
    kinetoscope = run_training("kinetoscope", fault.training, folder / f"{name}-kinetoscope")
    gain = int(faulty.printed) / 1024 if fault.is_leak else faulty.typical_step_ms() - fixed.typical_step_ms()
    return {ran.tool: Judgement(fault, read_report(ran), gain, ran.mean_step_ms()) for ran in (theirs, kinetoscope)}
