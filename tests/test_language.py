"""The ratchet on language: per file and surface, the old dialect may only become rarer.

`tests/data/language.json` has the allowed counts. After a change that lowers some, write it again with
``python tests/test_language.py``, which raises none; with files, it only checks these.
"""

import ast
import functools
import io
import json
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "tests" / "data" / "language.json"
MAX_WORDS = 35
PHRASES = re.compile(
    r"\b(mend\w*|told|tells of|is told|nobody|whoever|of which|for which|in which it|beside training|the begin|goes on|"
    r"trainings|a training that|has no processor|without a processor|of its own accord|who has|are those of|stands in|"
    r"lies in|the house|a room|gets on|let go|in words|not known)\b",
    re.IGNORECASE,
)
CONSTANTS = ("MOST", "FEWEST", "LEAST", "LONGEST", "MUCH", "LITTLE")
PARTS = {"said", "told", "tell", "whose", "glance", "glances", "mend", "mended", "ours", "odd", "stray"}
JOINED = ("give_way", "let_go", "goes_on", "take_over")
FIRST_PARTS = {"note", "tell"}
FIRST_WORDS = ("What", "Whether", "How", "For", "That", "Of", "By")
READ_FIRST = ("docs/", "src/kinetoscope/analysis/findings/rules/")
AT_ZERO = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")


class Violation(NamedTuple):
    """Words of the old dialect, or a sentence that is too long."""

    surface: str
    line: int
    words: str


def counts_of(path: Path) -> dict[str, int]:
    """Return the number of violations in a file, by surface; zeros are left out."""
    return dict(Counter(one.surface for one in violations_in(path)))


def violations_in(path: Path) -> Iterator[Violation]:
    """Yield the violations in a file."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".py":
        yield from _violations_in_python(text)
        return
    yield from _phrases("prose", text, 1)
    if path.suffix == ".md":
        yield from _long_sentences(text)


def _phrases(surface: str, text: str, first_line: int) -> Iterator[Violation]:
    for match in PHRASES.finditer(text):
        yield Violation(surface, first_line + text.count("\n", 0, match.start()), match.group())


def _violations_in_python(text: str) -> Iterator[Violation]:
    nodes = list(ast.walk(ast.parse(text)))
    docstrings = [node for node in nodes if _is_docstring(node)]
    written = {id(node.value) for node in docstrings}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield from _phrases("comments" if id(node) in written else "strings", node.value, node.lineno)
        for name in _names_in(node):
            if _is_old_name(name):
                yield Violation("identifiers", node.lineno, name)
    if any(PHRASES.search(line.partition("#")[2]) for line in text.split("\n") if "#" in line):  # tokens take long
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                yield from _phrases("comments", token.string, token.start[0])
    for node in docstrings:
        first = str(node.value.value).split(maxsplit=1)[:1]
        if first and first[0] in FIRST_WORDS:
            yield Violation("docstrings", node.lineno, f"starts with {first[0]}")


def _is_docstring(node: ast.AST) -> bool:
    """Return whether a node is a string that stands alone: a docstring, or that of an attribute."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _names_in(node: ast.AST) -> list[str]:
    """Return the names that a node defines."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return [node.name]
    if isinstance(node, ast.arg):
        return [node.arg]
    return [node.id] if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) else []


@functools.cache
def _is_old_name(name: str) -> bool:
    parts = [part for part in re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).strip("_").split("_") if part]
    if not parts:
        return False
    if name.isupper():
        return parts[0] in CONSTANTS
    small = [part.lower() for part in parts]
    joined = "_".join(small)
    first = len(small) > 1 and small[0] in FIRST_PARTS
    return first or bool(PARTS & {*small} - {"tell"}) or any(each in joined for each in JOINED)


def _long_sentences(text: str) -> Iterator[Violation]:
    """Yield the sentences of more than `MAX_WORDS` words in Markdown, without code and tables."""
    text = re.sub(r"^```.*?^```", lambda code: "\n" * code.group().count("\n"), text, flags=re.DOTALL | re.MULTILINE)
    line = 1
    for block, gap in re.findall(r"(.*?)(\n\s*\n|\n(?=\s*(?:[-*#]|\d+\.) )|\Z)", text, re.DOTALL):
        if not block.lstrip().startswith(("|", "<", "!")):
            prose = re.sub(r"\]\([^)]*\)|\*\*", "", block)
            for sentence in re.split(r"(?<=[.?!:;])\s", prose):
                words = sentence.split()
                if len(words) > MAX_WORDS:
                    yield Violation("long sentences", line, f"{len(words)} words: {' '.join(words[:6])} ...")
        line += (block + gap).count("\n")


def files() -> list[str]:
    """Return the tracked files with prose or code of ours."""
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    kept = [name for name in listed if re.search(r"\.(py|md|tsx?)$", name) and not name.startswith("tests/data/")]
    return [name for name in kept if name != "tests/test_language.py" and (ROOT / name).is_file()]


def all_counts() -> dict[str, dict[str, int]]:
    """Return the counts of all files that have some."""
    return {name: found for name in files() if (found := counts_of(ROOT / name))}


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, int]]:
    if not (ROOT / ".git").exists():
        pytest.skip("needs a Git checkout")
    return all_counts()


def list_risen(found: dict[str, dict[str, int]]) -> list[tuple[str, str, int]]:
    """Return the file and surface of each count above that of the table, with the allowed one."""
    allowed = json.loads(TABLE.read_text())
    return [
        (name, surface, most)
        for name, counts in found.items()
        for surface, num in counts.items()
        if num > (most := allowed.get(name, {}).get(surface, 0))
    ]


def describe(risen: list[tuple[str, str, int]]) -> str:
    """Return a line for each violation in files and surfaces with too many."""
    lines = []
    for name, surface, most in risen:
        allowed = f" (of these, {most} may stay)" if most else ""
        lines += [
            f"{name}:{one.line}: {one.words} ({surface}){allowed}"
            for one in violations_in(ROOT / name)
            if one.surface == surface
        ]
    return "\n".join(["Replace these words, and shorten these sentences:", *lines]) if lines else ""


def test_no_count_of_the_old_dialect_rises(found):
    risen = list_risen(found)
    assert not risen, describe(risen)


def test_a_violation_has_its_line_and_words(tmp_path):
    page, module = tmp_path / "page.md", tmp_path / "module.py"
    page.write_text("# Title\n\n```sh\ntold\n```\n\nIt goes on.\n\n" + "word " * 36 + "end.\n")
    module.write_text('"""Summary.\n\nNobody reads it.\n"""\n\n\ndef tell_all():\n    """What it does."""\n')
    assert [tuple(one) for one in violations_in(page)] == [
        ("prose", 4, "told"),
        ("prose", 7, "goes on"),
        ("long sentences", 9, "37 words: word word word word word word ..."),
    ]
    assert sorted(violations_in(module)) == [
        ("comments", 3, "Nobody"),
        ("docstrings", 8, "starts with What"),
        ("identifiers", 7, "tell_all"),
    ]


def test_first_read_pages_have_no_old_dialect(found):
    read_first = {name: counts for name, counts in found.items() if name in AT_ZERO or name.startswith(READ_FIRST)}
    assert read_first == {}
    screens = {
        name: counts["strings"]
        for name, counts in found.items()
        if "strings" in counts and name.startswith(("src/kinetoscope/cli/", "src/kinetoscope/analysis/findings/"))
    }
    assert screens == {}


def write() -> None:
    """Write the table; no count rises."""
    before = json.loads(TABLE.read_text()) if TABLE.exists() else None
    found = all_counts()
    if before is not None:
        found = {
            name: kept
            for name, counts in found.items()
            if (
                kept := {each: min(num, old) for each, num in counts.items() if (old := before.get(name, {}).get(each))}
            )
        }
    lines = [f"{json.dumps(name)}: {json.dumps(counts)}" for name, counts in sorted(found.items())]
    TABLE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def check(names: list[str]) -> str:
    """Return the violations in files with risen counts, for the hook; an empty string if there are none."""
    checked = set(names) & set(files())
    return describe(list_risen({name: counts_of(ROOT / name) for name in sorted(checked)}))


if __name__ == "__main__":
    sys.exit(check(sys.argv[1:]) or None) if sys.argv[1:] else write()
