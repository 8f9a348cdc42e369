"""Lines of `make same` on what differs."""

import pytest

from support.same_outputs.__main__ import differences, read_renamed_keys, update_schema


@pytest.mark.parametrize(
    ("before", "after", "lines"),
    [
        ({"run": {"step_ns": 5}}, {"run": {"step_ns": 5}}, []),
        ({"run": {"step_ns": 5}}, {"run": {"step_ns": 6}}, [".run.step_ns: 5 -> 6"]),
        ({"steps": [1, 2]}, {"steps": [1, 3]}, [".steps[1]: 2 -> 3"]),
        ({"steps": [1, 2]}, {"steps": [1]}, [".steps: [1, 2] -> [1]"]),
        ({"a": 1}, {"b": None, "a": 1.0}, [".b: '(absent)' -> None"]),
        ("one\ntwo\n", "one\nthree\n", [" -two", " +three"]),
        (None, "", [": None -> ''"]),
    ],
)
def test_each_difference_is_named(before, after, lines):
    assert list(differences(before, after)) == lines


def test_outputs_of_schema_1_get_the_keys_of_schema_2():
    finding = {"kind": "hang", "evidence": {"most_ns": 5, "num_hangs": 1}}
    steps = {"most_ns": 5, "is_odd": False, "pieces": [{"most_ns": 5}]}
    summary = {"schema": 1, "all_steps": steps, "findings": [finding]}
    updated = update_schema({"summary": summary}, read_renamed_keys())
    evidence = {"max_duration_ns": 5, "num_hangs": 1}
    assert updated["summary"]["findings"] == [{"kind": "hang", "evidence": evidence}]
    assert updated["summary"]["schema"] == 2
    new_steps = {"max_duration_ns": 5, "is_abnormal": False, "pieces": [{"max_duration_ns": 5}]}
    assert updated["summary"]["all_steps"] == new_steps
