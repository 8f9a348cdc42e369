"""Rule for recompilations: torch compiles again during training."""

from collections.abc import Iterator

import polars as pl

from kinetoscope.analysis.findings.diagnosis import Diagnosis
from kinetoscope.analysis.findings.evidence.run import Evidence
from kinetoscope.analysis.findings.fix import Fix
from kinetoscope.analysis.findings.rule import rule
from kinetoscope.analysis.replay.replay import Change
from kinetoscope.core.text.wording import format_count, format_ms, sanitize

_MAX_FIRST_STEPS = 2
"""Compilations in more steps than these recur."""

_MAX_GUARD_LENGTH, _MAX_FUNCTION_LENGTH = 400, 30
_FIRST_COMPILATIONS_ADVICE = (
    "This may be the first compilation, which every run has once: record later steps to see whether it recurs. "
)


@rule("recompilation", requires=("compiler",))
def find_recompilation(evidence: Evidence) -> Iterator[Diagnosis]:
    """Diagnose compilations."""
    if (compiler := evidence.compiler) is None:
        return
    stalls = compiler.stalls.frame
    where = compiler.stalls.where(with_steps=True)
    may_be_first = not stalls["guard"].count() and len(where.steps) <= _MAX_FIRST_STEPS
    num_compiles, name = int(stalls["num_calls"].sum()), _function_name(stalls)

    def title(cost_ns: float) -> str:
        if may_be_first:
            return f"Compilation in {format_count(len(where.steps), 'recorded step')}: {format_ms(cost_ns)} ms/step"
        return f"Recompilation: {format_count(num_compiles, 'recompile')}{name}, {format_ms(cost_ns)} ms/step"

    yield Diagnosis(
        title=title,
        advice=(_FIRST_COMPILATIONS_ADVICE if may_be_first else "") + _advise_on_guard(stalls),
        cost_ns=compiler.compile_ns,
        fix=Fix(Change(frozenset(["compile"]))),
        is_estimate=may_be_first,
        where=where,
        evidence={"compile_ns": compiler.compile_ns, "num_compilations": compiler.stalls.num_calls},
        stalls="compile",
    )


def _advise_on_guard(stalls: pl.DataFrame) -> str:
    """Return the advice, with the failed guard that cost most where one was recorded."""
    advice = (
        "Give each batch the same shape: `DataLoader(..., drop_last=True)`, pad to a multiple, or compile for all "
        "shapes: `torch.compile(model, dynamic=True)`."
    )
    failed = stalls.drop_nulls("guard").head(1).to_dicts()
    if not failed:
        return f"{advice} Set `TORCH_LOGS=recompiles` to print the guards that fail."
    name, guard = sanitize(failed[0]["name"].removeprefix("compile/")), sanitize(failed[0]["guard"], _MAX_GUARD_LENGTH)
    return f"{advice} {name} was compiled again because {guard}."


def _function_name(stalls: pl.DataFrame) -> str:
    """Return the recompiled function after "of"; "" where it is unknown or too long for a title."""
    names = stalls["name"].drop_nulls().unique().to_list()
    name = sanitize(names[0].removeprefix("compile/")) if len(names) == 1 else ""
    return f" of {name}" if 0 < len(name) <= _MAX_FUNCTION_LENGTH else ""
