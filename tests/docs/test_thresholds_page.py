"""The page of thresholds: each number of the findings is on it, with its value, unit and source."""

import ast
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FINDINGS = ROOT / "src" / "kinetoscope" / "analysis" / "findings"
SOURCES = ("contract", "measured: ", "derived: ", "limit: ", "judgement", "HTA's bound")


@pytest.fixture(scope="module")
def page():
    sys.path.insert(0, str(ROOT / "docs" / "extensions"))
    import thresholds

    yield thresholds
    sys.path.remove(str(ROOT / "docs" / "extensions"))


def numbers_in(path):
    """Return the names of the constants of a file that are numbers."""
    found, module = [], path.relative_to(FINDINGS).with_suffix("").as_posix().replace("/", ".")
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and all(is_number(value) for value in elements(node.value)):
            names = [target.id for target in elements(node.targets[0]) if isinstance(target, ast.Name)]
            found += [f"{module}.{name}" for name in names if name.isupper()]
    return found


def elements(node):
    return node.elts if isinstance(node, ast.Tuple) else [node]


def is_number(node):
    try:
        value = eval(compile(ast.Expression(node), "", "eval"), {})
    except Exception:
        return False
    return isinstance(value, int | float) and not isinstance(value, bool)


def test_the_page_has_each_number_of_the_findings(page):
    rows = [row for section in page.read_sections().values() for row in section]
    listed = {name.removeprefix("findings.") for name, *_ in rows if name.startswith("findings.")}
    assert len(rows) == len({name for name, *_ in rows})
    found = {name for path in FINDINGS.rglob("*.py") for name in numbers_in(path)}
    missing = found - listed - page.NOT_THRESHOLDS
    assert not missing, f"Add to docs/extensions/thresholds.txt, or to NOT_THRESHOLDS in thresholds.py: {missing}"
    assert found == listed | page.NOT_THRESHOLDS
    assert not listed & page.NOT_THRESHOLDS


def test_each_row_has_a_value_of_the_code_a_unit_and_a_source(page):
    text = page.render_thresholds()
    for section in page.read_sections().values():
        for name, unit, decides, origin in section:
            assert isinstance(page.value_of(name), int | float)
            assert unit
            assert decides
            assert origin.startswith(SOURCES), f"{name}: {origin}"
    assert "| `confidence.HIGH_SHARE` | 10 | % of a step |" in text
    assert "| `fault_graph.MAX_SMALL_KERNEL_NS` | 20 | us |" in text
    assert "| `run_queue_delay._BUSY_PERCENT` | 90 | % of the CPU time |" in text
    assert "| `contention.MIN_WALL_NS` | 200 | ms |" in text
