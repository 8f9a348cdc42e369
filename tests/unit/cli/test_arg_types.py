"""Numbers on the command line: the ranges that options accept, and the form in the error."""

from argparse import ArgumentTypeError

import pytest

from kinetoscope.cli import arg_types

MAX_INT = 2**31 - 1


@pytest.mark.parametrize(
    ("parse", "accepted", "refused"),
    [
        (arg_types.parse_whole_number, {"0": 0, "007": 7, str(MAX_INT): MAX_INT}, ["-1", "1.5", "٣", "", "2147483648"]),
        (arg_types.parse_positive_int, {"1": 1, str(MAX_INT): MAX_INT}, ["0", "00", "-1", "x", "2147483648"]),
        (arg_types.parse_port, {"0": 0, "65535": 65535}, ["65536", "-1", "http"]),
        (arg_types.parse_seconds, {"0": 0.0, "0.5": 0.5, "30": 30.0, "1e9": 1e9}, ["-0.1", "1.1e9", "nan", "inf", "x"]),
        (arg_types.parse_positive_seconds, {"1e-3": 0.001, "0.5": 0.5, "1e9": 1e9}, ["0", "-0.5", "1.1e9", "nan", "x"]),
        (arg_types.parse_positive_minutes, {"0.5": 0.5, "10": 10.0, "1e7": 1e7}, ["0", "-1", "1.1e7", "nan", "x"]),
        (
            arg_types.parse_numbers,
            {"3": [3], "0,2": [0, 2], "10-12": [10, 11, 12], "5,1-2": [5, 1, 2], "4-4": [4]},
            ["", "-1", "1-", "3-1", "1,,2", "x", "0-2000000", "0-999999,5-6"],
        ),
        (arg_types.parse_ranks, {"3": {3}, "0,4-7,5": {0, 4, 5, 6, 7}}, ["", "a", "7-4", "-1"]),
    ],
)
def test_numbers_in_their_range_are_accepted_and_others_are_refused_with_an_example(parse, accepted, refused):
    assert {text: parse(text) for text in accepted} == accepted
    for text in refused:
        with pytest.raises(ArgumentTypeError, match=f"'{text}'; write "):
            parse(text)


def test_a_long_value_is_shortened_in_the_error():
    with pytest.raises(ArgumentTypeError, match=f"cannot read '{'9' * 40}...'; write a whole number"):
        arg_types.parse_whole_number("9" * 41)
