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
from pathlib import Path

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


def counts_of(path: Path) -> dict[str, int]:
    """Return the number of violations in a file, by surface; zeros are left out."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".py":
        found = _counts_of_python(text)
    elif path.suffix == ".md":
        found = {"prose": len(PHRASES.findall(text)), "long sentences": _num_long_sentences(text)}
    else:
        found = {"prose": len(PHRASES.findall(text))}
    return {surface: num for surface, num in found.items() if num}


def _counts_of_python(text: str) -> Counter[str]:
    nodes = list(ast.walk(ast.parse(text)))
    docstrings = [node for node in nodes if _is_docstring(node)]
    written = {id(node.value) for node in docstrings}
    found = Counter[str]()
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found["comments" if id(node) in written else "strings"] += len(PHRASES.findall(node.value))
        for name in _names_in(node):
            found["identifiers"] += _is_old_name(name)
    if any(PHRASES.search(line.partition("#")[2]) for line in text.split("\n") if "#" in line):  # tokens take long
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                found["comments"] += len(PHRASES.findall(token.string))
    for node in docstrings:
        found["docstrings"] += str(node.value.value).lstrip().startswith(tuple(f"{word} " for word in FIRST_WORDS))
    return found


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


def _num_long_sentences(text: str) -> int:
    """Return the number of sentences of more than `MAX_WORDS` words in Markdown, without code and tables."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    num_long = 0
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*#]|\d+\.) )", text):
        if not block.lstrip().startswith(("|", "<", "!")):
            prose = re.sub(r"\]\([^)]*\)|\*\*", "", block)
            num_long += sum(len(one.split()) > MAX_WORDS for one in re.split(r"(?<=[.?!:;])\s", prose))
    return num_long


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


def list_risen(found: dict[str, dict[str, int]]) -> dict[str, str]:
    """Return the counts above those of the table, each with the allowed one."""
    allowed = json.loads(TABLE.read_text())
    return {
        f"{name}, {surface}": f"{num}, allowed {allowed.get(name, {}).get(surface, 0)}"
        for name, counts in found.items()
        for surface, num in counts.items()
        if num > allowed.get(name, {}).get(surface, 0)
    }


def test_no_count_of_the_old_dialect_rises(found):
    assert not list_risen(found), "write new text in the words of the language guide"


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
    """Return the risen counts of some files, for the hook; an empty string if there are none."""
    checked = set(names) & set(files())
    risen = list_risen({name: counts_of(ROOT / name) for name in sorted(checked)})
    return "\n".join(f"{where}: {what} words of the old dialect" for where, what in risen.items())


if __name__ == "__main__":
    sys.exit(check(sys.argv[1:]) or None) if sys.argv[1:] else write()
