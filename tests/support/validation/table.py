"""The table of docs/truth-by-doing.md, of faults that were tried."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from support.validation.trials import Trial

DOCUMENT = Path(__file__).parents[3] / "docs" / "truth-by-doing.md"
_BEGIN, _END = "<!-- the table begins -->\n", "<!-- the table ends -->\n"
_HEADINGS = (
    "training",
    "step, ms",
    "first finding",
    "line",
    "promised, ms",
    "gained, ms",
    "promised / gained",
    "gained unprofiled, ms",
)


def write_table(trials: Sequence[Trial], healthy: Sequence[str], into: Path = DOCUMENT) -> None:
    """Replace the table in the document, and print it. ``healthy`` are lines about runs without a fault."""
    rows = [_HEADINGS, ("---",) * len(_HEADINGS), *map(_row, trials)]
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    text = f"Measured on {time.strftime('%Y-%m-%d')}, on {_machine()}.\n\n{table}\n" + "".join(
        f"- {line}\n" for line in healthy
    )
    head, _, rest = into.read_text(encoding="utf-8").partition(_BEGIN)
    into.write_text(head + _BEGIN + text + _END + rest.partition(_END)[2], encoding="utf-8")
    print("\n" + text)


def _row(trial: Trial) -> tuple[str, ...]:
    promised_ns, gained_ns = trial.promised_ns, trial.gain_ns()
    kinds = dict.fromkeys(first.kind if first else "none" for first in trial.firsts)
    step_ns = sorted(trial.steps_ns["faulty", "recorded"])[len(trial.firsts) // 2]
    return (
        f"`{trial.fault.script}.py`",
        f"{step_ns / 1e6:.1f}",
        ", ".join(f"`{kind}`" for kind in kinds),
        f"`{trial.line}`" if trial.line else "not named",
        "" if promised_ns is None else f"{promised_ns / 1e6:.1f}",
        f"{gained_ns / 1e6:.1f}",
        "" if promised_ns is None else f"{promised_ns / gained_ns:.2f}",
        f"{trial.gain_ns('unprofiled') / 1e6:.1f}",
    )


def _machine() -> str:
    models = {
        line.partition(":")[2].strip()
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        if line.startswith("model name")
    }
    return f"{os.cpu_count()} cores of {' and '.join(sorted(models)) or 'an unnamed processor'}"
