"""Metadata: any JSON value is accepted; any other value is refused, and the error names it."""

import json

import pytest
import torch

from kinetoscope.errors import SettingsError
from kinetoscope.torch.metadata import check_json, encode_value


@pytest.mark.parametrize("value", ['"', "a\tb\n\\", "é", None, 1.5, {"a": [1, {"b": True}]}])
def test_a_json_value_comes_back_as_it_was(value):
    assert json.loads(encode_value("key", value)) == value


def test_a_tensor_counts_as_the_numbers_it_holds():
    assert json.loads(encode_value("key", {"loss": torch.tensor(2.0), "ids": torch.arange(3)})) == {
        "loss": 2.0,
        "ids": [0, 1, 2],
    }


@pytest.mark.parametrize("value", [float("nan"), object(), {1, 2}, {"a": float("inf")}])
def test_a_value_that_json_cannot_hold_is_refused_and_its_key_named(value):
    with pytest.raises(SettingsError, match="learning_rate"):
        encode_value("learning_rate", value)


@pytest.mark.parametrize("text", ["", "{", "nan", "NaN", "[1,]", "'a'", None, "-Infinity"])
def test_text_that_is_not_json_is_refused_and_the_key_named(text):
    with pytest.raises(ValueError, match="learning_rate"):
        check_json("learning_rate", text)


def test_a_key_must_be_a_string():
    with pytest.raises(SettingsError, match="key"):
        encode_value(3, "x")
