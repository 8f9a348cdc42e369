"""The command ``kinetoscope explain``: an explanation of a kind of finding, and its fixes."""

import argparse
import difflib
import json
from collections.abc import Mapping

from kinetoscope.analysis.findings.explanations import Explanation, explanations, format_explain_command, introduction
from kinetoscope.cli.options import add_details, add_json
from kinetoscope.core.text.wording import sanitize
from kinetoscope.errors import SettingsError

_EXAMPLES = """\
examples:
  kinetoscope explain input_bound
      explain the finding: a command that checks it, and code that fixes it
  kinetoscope explain input_bound --details
      also print other fixes, and how the finding and its saving are determined
  kinetoscope explain
      list all kinds
"""
_FIELDS = "kinetoscope explain --details"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``explain``."""
    parser.epilog = _EXAMPLES
    kind = parser.add_argument("kind", metavar="KIND", nargs="?", help="kind of finding (default: list all)")
    vars(kind)["completer"] = lambda **_: list(explanations())  # for argcomplete
    add_details(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print an explanation, or the list of all."""
    kind, known = arguments.kind, explanations()
    if kind is not None and kind not in known:
        raise SettingsError(_describe_unknown(kind, known))
    if arguments.json:
        text = known[kind].text if kind is not None else introduction()
        print(json.dumps({"kind": kind, "kinds": list(known), "text": text}))
    elif kind is not None:
        _print_explanation(known[kind], is_whole=arguments.details)
    else:
        _print_list(known, is_whole=arguments.details)
    return 0


def _print_explanation(explanation: Explanation, *, is_whole: bool) -> None:
    from rich.console import Group
    from rich.text import Text

    from kinetoscope.report.explanations import render_sections
    from kinetoscope.report.terminal.screen import print_screen

    sections = dict(explanation.sections if is_whole else explanation.first_sections())
    meaning = sections.pop("Meaning")
    title = Text.assemble((f"{explanation.kind}: ", "bold"), meaning)
    more = [] if is_whole else [f"\nMore: {format_explain_command(explanation.kind)} --details"]
    print_screen(lambda width: Group(title, "", render_sections(sections), *map(Text, more)))


def _print_list(known: Mapping[str, Explanation], *, is_whole: bool) -> None:
    """Print one line per kind; with ``is_whole`` also the fields of all findings."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from kinetoscope.report.explanations import render_markdown
    from kinetoscope.report.terminal.screen import print_screen

    table = Table.grid("kind", "meaning", padding=(0, 2, 0, 0))
    for kind, explanation in known.items():
        table.add_row(kind, explanation.meaning)
    fields = render_markdown(introduction()) if is_whole else Text(f"The fields of findings: {_FIELDS}")
    print_screen(lambda width: Group(table, "", fields))


def _describe_unknown(kind: str, known: Mapping[str, Explanation]) -> str:
    """Return an error message for an unknown kind, with a similar one."""
    close = difflib.get_close_matches(kind, known, 1)
    hint = f"Did you mean {close[0]}?" if close else f"Kinds: {', '.join(known)}."
    return f"Unknown kind of finding {sanitize(kind)!r}. {hint}"
