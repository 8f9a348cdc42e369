"""The page of each command has an entry for each of its options."""

import re
import sys
from pathlib import Path

import pytest

import kinetoscope.cli

EXTENSIONS = str(Path(__file__).parents[2] / "docs" / "extensions")


@pytest.fixture(scope="module")
def pages():
    sys.path.insert(0, EXTENSIONS)
    import generated_pages

    yield generated_pages.command_pages()
    sys.path.remove(EXTENSIONS)


@pytest.mark.parametrize("verb", kinetoscope.cli._VERBS)
def test_each_option_has_an_entry_with_a_description(verb, pages):
    parser, _ = kinetoscope.cli._build_parser(verb)
    actions = [action for action in parser._actions if action.option_strings and action.help != "==SUPPRESS=="]
    entries = dict(re.findall(r"^```\{option\} (.+)\n(.*)\n```$", pages[f"commands/{verb}.md"], re.M))
    named = {name for names in entries for name in re.findall(r"(?<!\S)--?[\w-]+", names)}
    assert named == {name for action in actions for name in action.option_strings}
    assert all(entries.values())
