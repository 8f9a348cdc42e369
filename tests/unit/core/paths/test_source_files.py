"""Which code is the user's own, and how the trace names its files."""

import json
import sys

import pytest

import kinetoscope
from kinetoscope.core.paths.source_files import find_user_line, is_user_code, source_name


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
    assert not is_user_code(json.__file__)
    assert not is_user_code(pytest.__file__)
    assert not is_user_code(kinetoscope.__file__)
    assert not is_user_code("<frozen importlib._bootstrap>")
    assert not is_user_code("<string>")


def test_scripts_notebooks_and_the_prompt_are_the_user():
    assert is_user_code("train.py")
    assert is_user_code(__file__)
    assert is_user_code("/tmp/ipykernel_7/123.py")
    assert is_user_code("<stdin>")


def test_the_line_is_that_of_the_innermost_function_of_the_users():
    frame = sys._getframe()
    assert find_user_line(frame) == f"{source_name(__file__)}:{frame.f_lineno}"
    assert find_user_line(None) == ""
