"""Each threshold decides: evidence on both sides of it differs, and no longer does with half or twice its value."""

import importlib
import pkgutil
import sys
from pathlib import Path

import pytest

pytest.importorskip("polars")
from support.synthetic_evidence import thresholds
from support.synthetic_evidence.thresholds import CASES

ROWS = Path(__file__).parents[4] / "docs" / "extensions" / "thresholds.txt"

for module in pkgutil.iter_modules(thresholds.__path__):
    importlib.import_module(f"{thresholds.__name__}.{module.name}")


@pytest.mark.parametrize("name", CASES)
def test_evidence_on_both_sides_differs(name):
    assert CASES[name].holds()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("factor", [0.5, 2], ids=["half", "double"])
def test_another_value_is_noticed(name, factor, monkeypatch):
    scale(name, factor, monkeypatch)
    assert not CASES[name].holds()


def test_each_threshold_of_the_page_has_a_case():
    rows = ROWS.read_text(encoding="utf-8").splitlines()
    listed = {row.split(" | ")[0] for row in rows if " | " in row}
    assert not listed - set(CASES), "Add a case to tests/support/synthetic_evidence/thresholds."
    assert not set(CASES) - listed, "Add a row to docs/extensions/thresholds.txt."


def scale(name, factor, monkeypatch):
    """Multiply a constant in its module, in those that import it, and in defaults of arguments."""
    module_name, _, constant = name.rpartition(".")
    module = importlib.import_module(f"kinetoscope.analysis.{module_name}")
    value = getattr(module, constant)
    scaled = value * 2 if factor == 2 else value // 2 if value % 2 == 0 else value / 2  # of integers an integer
    for other in [other for key, other in sys.modules.items() if key.startswith("kinetoscope.")]:
        if other is module or (not constant.startswith("_") and getattr(other, constant, None) is value):
            monkeypatch.setattr(other, constant, scaled)
        for function in functions_of(other) if isinstance(value, float) else ():
            scale_defaults(function, value, scaled, monkeypatch)


def functions_of(module):
    members = [member for member in vars(module).values() if getattr(member, "__module__", "") == module.__name__]
    return [member.__init__ if isinstance(member, type) else member for member in members]


def scale_defaults(function, value, scaled, monkeypatch):
    if any(default is value for default in getattr(function, "__defaults__", None) or ()):
        defaults = tuple(scaled if one is value else one for one in function.__defaults__)
        monkeypatch.setattr(function, "__defaults__", defaults)
    if any(default is value for default in (getattr(function, "__kwdefaults__", None) or {}).values()):
        defaults = {key: scaled if one is value else one for key, one in function.__kwdefaults__.items()}
        monkeypatch.setattr(function, "__kwdefaults__", defaults)
