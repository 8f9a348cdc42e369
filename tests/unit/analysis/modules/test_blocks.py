"""analysis/modules/blocks.py: names of repeated blocks as one."""

import pytest

from kinetoscope.analysis.modules.blocks import find_pattern, format_range


def names(template, numbers):
    return [template.format(number) for number in numbers]


@pytest.mark.parametrize(
    ("numbers", "written"),
    [
        (range(32), "0-31"),
        ([0, 2], "0,2"),
        ([0, 1], "0,1"),
        ([0, 1, 2, 4, 5, 6], "0-2,4-6"),
        ([1, 3, 5, 7, 9, 11], "1,3,5,7,..."),
        ([2, 0, 10, 1], "0-2,10"),
    ],
)
def test_repeated_blocks_have_the_range_of_their_numbers(numbers, written):
    assert format_range(names("Model.layers.{}.mlp", numbers)) == f"Model.layers.{written}.mlp"


def test_each_number_has_its_range():
    both = [f"layers.{layer}.experts.{expert}" for layer in range(4) for expert in range(8)]
    assert format_range(both) == "layers.0-3.experts.0-7"


def test_digits_within_a_name_are_no_number_of_a_block():
    assert find_pattern("ResNet.layer1.0.conv2") == "ResNet.layer1.#.conv2"
    assert find_pattern("UNet-2.down.10") == "UNet-2.down.#"
