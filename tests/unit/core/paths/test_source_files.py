"""Which code is the user's own, and how the trace names its files."""

import json
import sys

import pytest

import kinetoscope
from kinetoscope.core.paths.source_files import is_of_user, line_of_user, source_name


def test_a_file_is_named_from_the_innermost_folder_from_which_python_imports_it(monkeypatch):
    monkeypatch.setattr(sys, "path", ["/home/ann/project", "/home/ann/project/parts", "/opt/lib/python3.11"])
    source_name.cache_clear()
    assert source_name("/home/ann/project/model/layers.py") == "model/layers.py"
    assert source_name("/home/ann/project/parts/layers.py") == "layers.py"


@pytest.mark.parametrize("folder", ["/", "/home", ""])
def test_no_home_is_left_in_a_name_even_if_python_imports_from_everywhere(monkeypatch, folder):
    monkeypatch.setattr(sys, "path", [folder])
    source_name.cache_clear()
    assert source_name("/home/ann/project/train.py") == "train.py"


def test_python_its_libraries_and_we_are_not_the_user():
    assert not is_of_user(json.__file__)
    assert not is_of_user(pytest.__file__)
    assert not is_of_user(kinetoscope.__file__)
    assert not is_of_user("<frozen importlib._bootstrap>")
    assert not is_of_user("<string>")


def test_scripts_notebooks_and_the_prompt_are_the_user():
    assert is_of_user("train.py")
    assert is_of_user(__file__)
    assert is_of_user("/tmp/ipykernel_7/123.py")
    assert is_of_user("<stdin>")


def test_the_line_is_that_of_the_innermost_function_of_the_users():
    frame = sys._getframe()
    assert line_of_user(frame) == f"{source_name(__file__)}:{frame.f_lineno}"
    assert line_of_user(None) == ""
