"""README, site, metadata and ``--help`` agree: one description, and commands with options that exist."""

import re
import tomllib
from pathlib import Path

import pytest

import kinetoscope.cli
from kinetoscope.experiments.trackers import TRACKERS

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted(
    path.relative_to(ROOT).as_posix()
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.md")]
    if "generated" not in path.parts
)
DATED = ("docs/decisions/", "CHANGELOG.md")
"""Documents that keep the commands of their date."""
COMMAND = re.compile(r"(?<![\w./%-])kinetoscope +((?:-V|--version|[a-z]+)(?: [^\n`|;&]*)?)")


def text_of(path):
    return (ROOT / path).read_text(encoding="utf-8")


def words(text):
    return " ".join(text.replace("*", "").split())


def test_readme_site_help_package_and_citation_have_the_same_description(capsys):
    assert kinetoscope.cli.main(["help"]) == 0
    (sentence,) = re.findall(r"^\*\*(Kinetoscope .+\.)\*\*$", text_of("README.md"), re.M)
    assert words(capsys.readouterr().out.partition("\n\n")[0]) == sentence
    assert words(text_of("docs/index.md").partition("\n\n")[2]).startswith(f"{sentence} ")
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    assert f"Kinetoscope {project['description'][0].lower()}{project['description'][1:]}" == sentence
    assert f'\nabstract: "{sentence}"\n' in text_of("CITATION.cff")


def test_readme_and_site_name_the_supported_versions():
    pythons = re.findall(r":: (3\.\d+)\"", text_of("pyproject.toml"))
    torch = re.search(r"\| torch \| (\d+\.\d+) and newer", text_of("docs/support.md"))[1]
    sentence = f"CPython {pythons[0]} to {pythons[-1]}, torch {torch} or newer"
    assert sentence in text_of("README.md")
    assert f"| Python | CPython {', '.join(pythons)} |" in text_of("docs/support.md")


def commands_in(document):
    """Yield the words after ``kinetoscope`` in each command of code blocks, but Python's, and of inline code."""
    code = re.findall(r"^ *```+(?:sh|text|yaml|Dockerfile)?\n(.*?)^ *```", text_of(document), re.M | re.S)
    code += re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text_of(document))
    for block in code:
        yield from (command.split() for command in COMMAND.findall(block.replace("\\\n", " ")))


def own_options(words_after, takes_value):
    """Yield the options of a command; of ``run`` and ``try``, those before the user's command."""
    verb, *rest = words_after
    is_value = False
    for word in rest:
        option = word.partition("=")[0]
        if re.fullmatch(r"--?[a-z][a-z-]*", option):
            yield option
            is_value = takes_value.get(word, False)
        elif verb in ("run", "try") and not is_value:
            return
        else:
            is_value = False


@pytest.mark.parametrize("document", [path for path in DOCUMENTS if not path.startswith(DATED)])
def test_commands_in_a_document_have_verbs_and_options_of_the_help(document):
    for command in commands_in(document):
        if command[0] in ("help", "version", "-V", "--version"):
            continue
        assert command[0] in kinetoscope.cli._VERBS, command
        parser, _ = kinetoscope.cli._build_parser(command[0])
        takes_value = {option: action.nargs != 0 for action in parser._actions for option in action.option_strings}
        assert {*own_options(command, takes_value)} <= {*takes_value}, command


def test_the_page_of_try_lists_the_variables_that_disable_trackers():
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", text_of("docs/try.md").partition("## Experiment trackers")[2], re.M)
    listed = {name: dict(re.findall(r"`(\w+)=?(\w*)`", cell)) for name, cell in rows if "`" in cell}
    assert listed == {
        name: {variable: "" if "{folder}" in value else value for variable, value in variables.items()}
        for name, variables in TRACKERS.items()
    }
