"""benchmarks: which tool names the fault of a training, its line, what it costs, and what mending it saves."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.traceml.tools import Said, Training, run_training, said_of

_RIGHT_WITHIN = 0.2


@dataclass(frozen=True)
class Fault:
    """A training with a fault. ``names`` are verdicts that name it; ``buckets`` those that only say where to look."""

    what: str
    training: Training
    names: Sequence[str]
    buckets: Sequence[str] = ()


_PYTHON = ("python_overhead",)
_STRAGGLERS = ("straggler", "INPUT STRAGGLER", "COMPUTE STRAGGLER", "STRAGGLER")
_RESIDUAL = ("RESIDUAL-HEAVY",)

FAULTS = [
    Fault("slow `__getitem__`", Training(script="slow_getitem.py"), ["input_bound", "INPUT-BOUND"]),
    Fault("a rank late in every third step", Training(script="late_rank.py", num_ranks=2), _STRAGGLERS),
    Fault("512 `.item()` a step", Training(script="many_items.py"), (*_PYTHON, "small_kernels"), _RESIDUAL),
    Fault("a loss in a Python loop", Training(script="python_loss.py"), _PYTHON, _RESIDUAL),
    Fault("garbage collections", Training(script="gc_pressure.py"), ["garbage_collection"], _RESIDUAL),
    Fault("recompilations", Training(script="recompilation.py"), ["recompilation"], _RESIDUAL),
    Fault("a leak of graphs", Training(script="graph_leak.py"), ["memory_growth", "MEMORY CREEP", "MEMORY RISING"]),
    Fault("20 ms of logging between steps", Training(script="slow_log.py"), _PYTHON, _RESIDUAL),
]

VALIDATION = Fault("evaluation", Training(script="validation.py"), [])


@dataclass(frozen=True)
class Judged:
    """What a tool said of a fault. ``gain_ms`` is what mending gains of a step, measured without a tool; ``loop_ms`` is
    what a step of the loop took under this tool."""

    fault: Fault
    said: Said
    gain_ms: float
    loop_ms: float

    @property
    def share_of_loop(self) -> float:
        """Which part of the loop's time the tool's steps are."""
        return (self.said.step_ms or 0) / self.loop_ms

    @property
    def is_named(self) -> bool:
        return self.said.verdict in self.fault.names

    @property
    def verdict(self) -> str:
        said = f'"{self.said.verdict or "nothing"}"'
        if self.is_named:
            return said
        return f"{said}: where to look" if self.said.verdict in self.fault.buckets else f"{said}: no"

    @property
    def line(self) -> str:
        return self.said.line_of(self.fault.training) or "no"

    @property
    def is_cost_right(self) -> bool:
        return self._is_right(self.said.cost_ms)

    @property
    def is_saving_right(self) -> bool:
        return self._is_right(self.said.saving_ms)

    def _is_right(self, value_ms: float | None) -> bool:
        return value_ms is not None and abs(value_ms - self.gain_ms) <= _RIGHT_WITHIN * self.gain_ms


def judge(fault: Fault, folder: Path) -> dict[str, Judged]:
    """Runs the training mended, with the fault, and with the fault under each tool."""
    name = Path(fault.training.script).stem
    mended = run_training("none", fault.training.with_arguments("--mended"), folder / f"{name}-mended")
    theirs = run_training("traceml", fault.training, folder / f"{name}-traceml")
    faulty = run_training("none", fault.training, folder / f"{name}-none")
    ours = run_training("kinetoscope", fault.training, folder / f"{name}-kinetoscope")
    gain_ms = faulty.mean_step_ms() - mended.mean_step_ms()
    return {ran.tool: Judged(fault, said_of(ran), gain_ms, ran.mean_step_ms()) for ran in (theirs, ours)}
