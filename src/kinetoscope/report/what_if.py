"""Estimated step times with something changed, on a terminal."""

from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kinetoscope.analysis.analyze import RunReport
from kinetoscope.analysis.unrecorded_steps import find_unrecorded_step_ns
from kinetoscope.analysis.what_if import WhatIf
from kinetoscope.core.text.wording import format_ms, format_ranks, sanitize_sentence, shorten_name

_MAX_NAME_LENGTH = 60
_WITHOUT = {
    "data": "no wait for data",
    "sync": "no blocking syncs",
    "launch": "free kernel launches",
    "transfer": "free communication",
    "python": "no Python overhead",
    "blocked": "no blocked calls",
    "gc": "no GC pauses",
    "compile": "no compilation",
}


def render_what_ifs(report: RunReport, what_ifs: Sequence[WhatIf]) -> RenderableType:
    """Return a table with a row per estimate, the largest saving first."""
    if (step_ns := what_ifs[0].step_ns) is None:
        return Text("No steps recorded: pass --step SPAN to name the spans that are steps.")
    if report.graph is not None and (why := report.graph.why_untrusted) is not None:
        return Text(sanitize_sentence(f"Unknown: {why}"))
    if what_ifs[0].fix is not None and what_ifs[0].saving_ns_per_step is None:
        return Text(f"Unknown: no replay estimates the saving of finding {what_ifs[0].fix}.")
    table = Table(box=None, pad_edge=False)
    for name in ("", "step ms", "saves ms", ""):
        table.add_column(name, justify="right" if name else "left", no_wrap=bool(name), overflow="fold")
    table.add_row("as recorded", format_ms(step_ns))
    for estimate in sorted(what_ifs, key=lambda estimate: -(estimate.saving_ns_per_step or 0)):
        saving_ns = estimate.saving_ns_per_step or 0
        table.add_row(
            Text(sanitize_sentence(_describe_what_if(estimate, report))),
            format_ms(step_ns - saving_ns),
            format_ms(saving_ns),
            f"{saving_ns / step_ns:.1%}",
        )
    lines = ["Each line stands alone: savings do not add up."] if len(what_ifs) > 1 else []
    if (unrecorded_ns := find_unrecorded_step_ns(report.run)) is not None:
        lines.append(
            f"Times are of recorded steps. Without recording, a step takes {format_ms(unrecorded_ns)} ms: savings of "
            "findings are of that step."
        )
    return Group(table, *map(Text, lines))


def _describe_what_if(estimate: WhatIf, report: RunReport) -> str:
    if estimate.fix is not None:
        return f"without finding {estimate.fix}: {report.findings[estimate.fix - 1].title}"
    return describe_change(estimate.without, estimate.faster, estimate.on_time)


def describe_change(without: Iterable[str], faster: Iterable[tuple[str, float]], on_time: Sequence[int]) -> str:
    """Describe the change of a replay."""
    parts = [_WITHOUT[cause] for cause in without]
    parts += [f"{shorten_name(name, _MAX_NAME_LENGTH)} {times:g}x faster" for name, times in faster]
    parts += [f"{format_ranks(sorted(on_time))} without straggler delay"] if on_time else []
    return ", ".join(parts) or "no change"
