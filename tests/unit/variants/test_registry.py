"""Variants of Kinetoscope, of a user's file, and of an installed package."""

import importlib.metadata

import pytest

from kinetoscope.errors import SettingsError
from kinetoscope.variants.facts import Facts
from kinetoscope.variants.registry import Variant, load_variants

FILE = """
from kinetoscope.variants import variant

@variant("mine", find_values=lambda facts: [1, 2], code="mine({value})", kinds=["input_bound"])
def apply(value, applied):
    applied()
"""


pytestmark = pytest.mark.usefixtures("separate_variants")


def test_a_file_adds_a_variant(tmp_path):
    file = tmp_path / "added_by_file.py"
    file.write_text(FILE)
    found = load_variants([file])["mine"]
    assert list(found.find_values(None)) == [1, 2]
    assert found.kinds == ("input_bound",)


def test_files_of_the_same_name_both_add_their_variants(tmp_path):
    files = [tmp_path / folder / "added.py" for folder in ("mine", "yours")]
    for file in files:
        file.parent.mkdir()
        file.write_text(FILE.replace("mine", file.parent.name))
    assert {"mine", "yours"} <= load_variants(files).keys()


@pytest.mark.parametrize(("text", "reason"), [("1 / 0", "ZeroDivisionError"), (None, "is no Python file")])
def test_a_file_that_cannot_be_imported_is_an_error(text, reason, tmp_path):
    file = tmp_path / "broken_variants.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(SettingsError, match=f"--variants: .*{reason}"):
        load_variants([file])


def test_a_package_adds_a_variant_by_its_entry_point(tmp_path, monkeypatch):
    (tmp_path / "package_of_variants.py").write_text(FILE)
    monkeypatch.syspath_prepend(tmp_path)
    point = importlib.metadata.EntryPoint("mine", "package_of_variants", "kinetoscope.variants")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [point] if group == point.group else [])
    assert "mine" in load_variants()


@pytest.mark.parametrize(
    ("text", "value"), [("4", 4), ("0.5", 0.5), ("True", True), ("false", False), ("high", "high")]
)
def test_a_value_of_a_variant_that_takes_all_is_read_from_text(text, value):
    parsed = Variant("mine", lambda value, applied: None, lambda facts: [1], code="mine()").parse_value(text)
    assert (type(parsed), parsed) == (type(value), value)


@pytest.mark.parametrize(
    ("name", "text", "value"), [("fused", "1", True), ("bf16", "true", True), ("num_workers", "0", 0)]
)
def test_a_valid_value_has_the_type_of_its_variant(name, text, value):
    parsed = load_variants()[name].parse_value(text)
    assert (type(parsed), parsed) == (type(value), value)


@pytest.mark.parametrize(
    ("name", "text", "values"),
    [
        ("bf16", "False", "True"),
        ("compile", "0", "True"),
        ("channels_last", "", "True"),
        ("relaxed_gc", "off", "True"),
        ("fused", "2", "True or False"),
        ("num_workers", "abc", "0 to 1024"),
        ("num_workers", "0.5", "0 to 1024"),
        ("num_threads", "0", "1 to 1024"),
        ("prefetch_factor", "-1", "1 to 1024"),
    ],
)
def test_a_value_that_a_variant_does_not_take_is_an_error_that_names_the_valid_ones(name, text, values):
    with pytest.raises(SettingsError, match=f"--fix: {name} cannot be '{text}'. Its values: {values}\\."):
        load_variants()[name].parse_value(text)


def test_braces_in_the_code_of_a_variant_are_literal():
    mine = Variant("mine", lambda value, applied: None, lambda facts: [1], code="config = {'x': {value}, 'y': {}}")
    assert mine.describe_code(4, Facts()) == "config = {'x': 4, 'y': {}}"
