"""``kinetoscope explain``: says what a kind of finding is, how it is found, and what helps."""

import argparse
import difflib
import json

from kinetoscope.analysis.findings.chapters import chapters, introduction
from kinetoscope.cli.options import add_json
from kinetoscope.errors import SettingsError
from kinetoscope.texts.wording import shown

_EXAMPLES = """\
examples:
  kinetoscope explain input_bound
      what the finding `input_bound` says, how its saving is found, and what to change
  kinetoscope explain
      what all findings have in common, and every kind
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``explain``."""
    parser.epilog = _EXAMPLES
    kind = parser.add_argument("kind", metavar="KIND", nargs="?", help="a kind of finding (default: all there are)")
    vars(kind)["completer"] = lambda **_: list(chapters())  # for argcomplete
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Prints a chapter, or which there are."""
    kind, known = arguments.kind, chapters()
    if kind is not None and kind not in known:
        raise SettingsError(_unknown(kind, known))
    text = known[kind] if kind is not None else f"{introduction()}\n\n## Every kind\n\n{_listed(known)}"
    if arguments.json:
        print(json.dumps({"kind": kind, "kinds": list(known), "text": text}))
        return 0
    from rich.console import Console

    from kinetoscope.report.chapters import render_chapter

    Console(highlight=False).print(render_chapter(kind or "Findings", text))
    return 0


def _listed(known: dict[str, str]) -> str:
    """Each kind, with the first sentence of its chapter."""
    firsts = {kind: " ".join(text.partition("\n\n")[0].split()).partition(". ")[0] for kind, text in known.items()}
    return "\n".join(f"- `{kind}`: {first.rstrip('.:')}." for kind, first in firsts.items())


def _unknown(kind: str, known: dict[str, str]) -> str:
    close = difflib.get_close_matches(kind, known, 1)
    named = f"Did you mean {close[0]}?" if close else f"The kinds are: {', '.join(known)}."
    return f"There is no kind of finding {shown(kind)!r}. {named}"
