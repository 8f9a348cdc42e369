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
      explain the finding, how its saving is estimated, and how to fix it
  kinetoscope explain
      list all kinds, and what they have in common
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of ``explain``."""
    parser.epilog = _EXAMPLES
    kind = parser.add_argument("kind", metavar="KIND", nargs="?", help="kind of finding (default: list all)")
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
    hint = f"Did you mean {close[0]}?" if close else f"Kinds: {', '.join(known)}."
    return f"Unknown kind of finding {shown(kind)!r}. {hint}"
