"""The command ``kinetoscope explain``: an explanation of a finding or of a kind of finding, and its fixes."""

import argparse
import difflib
import json
from collections.abc import Mapping, Sequence

from kinetoscope.analysis.findings.explanations import Explanation, explanations, format_explain_command, introduction
from kinetoscope.cli.options import add_details, add_json
from kinetoscope.core.text.wording import format_count, sanitize, sanitize_sentence
from kinetoscope.errors import SettingsError

_EXAMPLES = """\
examples:
  kinetoscope explain 1
      explain finding 1 of the newest run in ./runs, or of --run RUN
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
    kind = parser.add_argument(
        "kind",
        metavar="KIND",
        nargs="?",
        help="kind of finding, a part of its name, or the number of a finding (default: list all)",
    )
    parser.add_argument("--run", metavar="RUN", help="run of a numbered finding (default: the newest run in ./runs)")
    vars(kind)["completer"] = lambda **_: list(explanations())  # for argcomplete
    add_details(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print an explanation, or the list of all."""
    word, known = arguments.kind, explanations()
    kind, title = (None, "") if word is None else _find_kind(word, arguments.run, known)
    if arguments.json:
        text = known[kind].text if kind is not None else introduction()
        print(json.dumps({"kind": kind, "kinds": list(known), "text": text}))
    elif kind is not None:
        _print_explanation(known[kind], title, is_whole=arguments.details)
    else:
        _print_list(known, is_whole=arguments.details)
    return 0


def _find_kind(word: str, run: str | None, known: Mapping[str, Explanation]) -> tuple[str, str]:
    """Return the kind that a word means, and the title of the finding whose number it is; "" for other words.

    Raises:
        SettingsError: there is no such finding, or no kind, or several.
    """
    if word in known:
        return word, ""
    if word.isdecimal():
        return _find_numbered(int(word), run)
    if of_id := [kind for kind in known if word.startswith(f"{kind}-")]:
        return of_id[0], ""
    part = word.lower().replace("_", " ")
    kinds = [kind for kind, one in known.items() if part in f"{kind.replace('_', ' ')} {one.title.lower()}"]
    if len(kinds) > 1 and part.strip():
        raise SettingsError(f"{sanitize(word)!r} is part of several kinds of findings: {', '.join(kinds)}.")
    if len(kinds) != 1:
        raise SettingsError(_describe_unknown(word, list(known)))
    return kinds[0], ""


def _find_numbered(number: int, run: str | None) -> tuple[str, str]:
    """Return the kind and the title of a finding by its number in `kinetoscope summary`."""
    from kinetoscope.cli.loading import read_findings
    from kinetoscope.cli.paths import find_newest_run

    path = run or find_newest_run()
    findings = read_findings(path)
    if not 1 <= number <= len(findings):
        count = format_count(len(findings), "finding") if findings else "no finding"
        raise SettingsError(f"There is no finding {number}: {sanitize(path)} has {count}.")
    return findings[number - 1].kind, findings[number - 1].title


def _print_explanation(explanation: Explanation, finding: str, *, is_whole: bool) -> None:
    """Print an explanation, below the title of its ``finding`` if there is one."""
    from rich.console import Group
    from rich.text import Text

    from kinetoscope.report.explanations import render_sections
    from kinetoscope.report.terminal.screen import print_screen

    sections = dict(explanation.sections if is_whole else explanation.first_sections())
    meaning = sections.pop("Meaning")
    title = Text.assemble((f"{explanation.kind}: ", "bold"), meaning)
    head = [Text(sanitize_sentence(finding), style="bold"), Text()] if finding else []
    more = [] if is_whole else [f"\nMore: {format_explain_command(explanation.kind)} --details"]
    print_screen(lambda width: Group(*head, title, "", render_sections(sections), *map(Text, more)))


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


def _describe_unknown(word: str, kinds: Sequence[str]) -> str:
    """Return an error message for a word that is no kind, with a similar one."""
    close = difflib.get_close_matches(word, kinds, 1)
    hint = f"Did you mean {close[0]}?" if close else f"Kinds: {', '.join(kinds)}."
    return f"Unknown kind of finding {sanitize(word)!r}. {hint} A number explains that finding of a run (--run RUN)."
