"""Our numbers equal the committed ones of HolisticTraceAnalysis for the committed traces."""

import json
from pathlib import Path

import pytest

from support.hta_comparison.our_numbers import kinds_of_hta, our_numbers
from support.hta_comparison.reading import as_hta_reads

FOLDER = Path(__file__).parents[2] / "data" / "hta"
NUMBERS = json.loads((FOLDER / "numbers.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", NUMBERS)
def test_time_idle_overlap_launches_and_kernels_are_as_hta_has_them(name, tmp_path):
    theirs = NUMBERS[name] | {"kinds": kinds_of_hta(NUMBERS[name]["kinds"])}
    assert our_numbers(as_hta_reads(FOLDER / f"{name}.json.gz", tmp_path)) == theirs
