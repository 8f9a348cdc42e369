"""TraceML and Kinetoscope on the same training runs: diagnosis, line, cost and estimated saving of each fault.

The reports of both tools are parsed and judged by rules (`faults.py`), not by hand. Runs alternate: without a tool,
under TraceML, under ours. The tables go into docs/compat/traceml.md.
"""

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.suite import Measure, SuiteResult
from benchmarks.traceml import endings, healthy, unmodified
from benchmarks.traceml.faults import FAULTS, VALIDATION, Judgement, judge
from benchmarks.traceml.tools import FinishedRun, ToolReport, read_report

_DOCS = Path(__file__).parents[2] / "docs" / "compat" / "traceml.md"
_NAMES = {"traceml": "TraceML", "kinetoscope": "kinetoscope"}
_TOOLS = tuple(_NAMES)

_COMPLETE = "Telemetry complete"
_NO_TIME = "no time"

Rows = list[list[str]]


def run(quick: bool) -> SuiteResult:
    """Measure all, print the tables as they stand in the docs, and write them there unless ``quick``."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        judged = [judge(fault, folder) for fault in ([FAULTS[0], FAULTS[-1]] if quick else FAULTS)]
        medium = healthy.run_rounds("medium", 2 if quick else 5, folder)
        small = healthy.run_rounds("small", 1 if quick else 2, folder)
        others = [
            _time_row(judged[-1]),
            _validation_row(judge(VALIDATION, folder)),
            *_healthy_rows(medium, folder),
            *_ending_rows(folder),
            _load_row(small, folder),
            *_cost_rows(medium, "2 ms"),
            *_cost_rows(small, "0.2 ms"),
        ]
        without_change = unmodified.rows(folder / "unmodified", quick=quick)
        slowdowns = [*_slowdowns(medium, "2 ms"), *_slowdowns(small, "0.2 ms")]
    head = ["what", *_NAMES.values()]
    tables = {
        "faults": _markdown(_fault_rows(judged)),
        "unmodified": _markdown([["what", "traceml run", "kinetoscope run"], *without_change]),
        "others": _markdown([head, *others]),
    }
    for name, table in tables.items():
        print(table)
        if not quick:
            _put_into_docs(name, table)
    return SuiteResult(
        suite="traceml",
        title="the same training runs under TraceML 0.5.0 and under ours",
        measures=[*_counts(judged), *slowdowns],
        notes=["Ours records 40 steps of a run, with diagnose=True; TraceML times all steps.", _format_slower(judged)],
    )


def _fault_rows(judged: Sequence[dict[str, Judgement]]) -> Rows:
    rows = [["training with", "measured saving", "tool", "reports", "line", "cost a step", "saving a step"]]
    for of_tools in judged:
        for tool, name in _NAMES.items():
            one = of_tools[tool]
            head = [one.fault.what, f"{one.gain:.1f} {one.fault.unit}"] if tool == _TOOLS[0] else ["", ""]
            cost = _format_check(one.cost, one.fault.unit, one.is_cost_right)
            saving = _NO_TIME if one.fault.is_leak else _format_check(one.report.saving_ms, "ms", one.is_saving_right)
            rows.append([*head, name, one.verdict, one.line, cost, saving])
    return rows


def _format_check(value: float | None, unit: str, is_right: bool) -> str:
    if value is None:
        return "not reported"
    return f"{value:.1f} {unit}" if is_right else f"{value:.1f} {unit}: not within 20 %"


def _time_row(of_tools: dict[str, Judgement]) -> list[str]:
    shares = [f"{100 * of_tools[tool].share_of_loop:.0f} %" for tool in _TOOLS]
    return [f"{of_tools['traceml'].fault.what}: part of the loop's time in its report", *shares]


def _validation_row(of_tools: dict[str, Judgement]) -> list[str]:
    return ["an evaluation after every fifth step", *(_format_evaluation(of_tools[tool].report) for tool in _TOOLS)]


def _format_evaluation(report: ToolReport) -> str:
    numbers = f"evaluation {report.evaluation_ms:.1f} ms a step" if report.evaluation_ms else "no evaluation"
    return f'"{report.verdict}", {numbers}' if report.is_sure else numbers


def _healthy_rows(rounds: healthy.Rounds, folder: Path) -> Rows:
    num_runs = len(rounds.ran["none"])
    warned = [healthy.warnings(rounds, tool) for tool in _TOOLS]
    changed = [healthy.false_changes(rounds, tool, folder) for tool in _TOOLS]
    return [
        [
            f"{num_runs} healthy runs: warnings, findings of high confidence",
            *(_format_warnings(report) for report in warned),
        ],
        [
            "pairs of them, compared: called faster or slower",
            *(f"{few} of {all_}" for few, all_ in changed),
        ],
    ]


def _format_warnings(reports: Sequence[ToolReport]) -> str:
    verdicts = sorted({f'"{one.verdict}"' for one in reports})
    return f"{len(reports)}: {', '.join(verdicts)}" if reports else "0"


def _ending_rows(folder: Path) -> Rows:
    rows = [
        [
            f"{what} (Python's own exit code: {endings.ENDINGS[how]})",
            *(_format_ending(endings.end_early(how, tool, folder)) for tool in _TOOLS),
        ]
        for how, what in {"exit": "`sys.exit(3)`", "wait": "SIGTERM", "kill": "SIGKILL"}.items()
    ]
    neighbours = ["; ".join(map(_format_ending, endings.run_two_at_once(tool, folder))) for tool in _TOOLS]
    return [
        *rows,
        ["two runs at once, as if each were alone", *neighbours],
    ]


def _format_ending(left: endings.Ending) -> str:
    return f"{left.exit_code}, {left.num_steps} steps"


def _load_row(rounds: healthy.Rounds, folder: Path) -> list[str]:
    ran = rounds.ran["traceml"][0], healthy.run_recording_all("small", folder)
    return ["steps of 0.2 ms in its report", *map(_format_steps, ran)]


def _format_steps(ran: FinishedRun) -> str:
    numbers = f"{read_report(ran).num_steps:,} of {healthy.SIZES['small']:,}"
    return f'{numbers}, and "{_COMPLETE}"' if _COMPLETE in ran.printed else numbers


def _cost_rows(rounds: healthy.Rounds, step: str) -> Rows:
    parts = {"all": "the mean of all", "recorded": "in ours' window", "others": "outside of it"}
    return [
        [f"a step of {step} is slower by: {what}", *(f"{rounds.slower_by(tool, part):.1f} %" for tool in _TOOLS)]
        for part, what in parts.items()
    ]


def _counts(judged: Sequence[dict[str, Judgement]]) -> list[Measure]:
    measures = []
    for tool, name in _NAMES.items():
        ones = [of_tools[tool] for of_tools in judged]
        counts = {
            "faults named": sum(one.is_named for one in ones),
            "lines named": sum(one.line != "no" for one in ones),
            "costs within 20 %": sum(one.is_cost_right for one in ones),
            "savings within 20 %": sum(one.is_saving_right and one.report.saving_ms is not None for one in ones),
        }
        measures += [Measure(f"{what}, {name}", count, f"of {len(ones)}") for what, count in counts.items()]
    return measures


def _format_slower(judged: Sequence[dict[str, Judgement]]) -> str:
    """Return where TraceML was better, with the fault."""
    better = [
        f"{theirs.fault.what}: {mark}"
        for theirs, kinetoscope in ((of_tools["traceml"], of_tools["kinetoscope"]) for of_tools in judged)
        for mark, value in theirs.marks.items()
        if value > kinetoscope.marks[mark]
    ]
    return f"Faults on which TraceML reports something better: {', '.join(better) or 'none'}."


def _slowdowns(rounds: healthy.Rounds, step: str) -> list[Measure]:
    parts = ("all", "recorded", "others")
    return [
        Measure(f"step of {step} slower, {part}, {name}", rounds.slower_by(tool, part), "%")
        for tool, name in _NAMES.items()
        for part in parts
    ]


def _markdown(rows: Rows) -> str:
    head, *others = rows
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *others])


def _put_into_docs(name: str, table: str) -> None:
    begin, end = f"<!-- {name}: from make bench-traceml -->", f"<!-- end of {name} -->"
    text = _DOCS.read_text()
    _DOCS.write_text(re.sub(f"(?s){begin}.*{end}", lambda _: f"{begin}\n{table}\n{end}", text))
