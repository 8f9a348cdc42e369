"""Which activities are recorded."""

import pytest

from kinetoscope.errors import SettingsError
from kinetoscope.torch import ProfilerActivity, supported_activities
from kinetoscope.torch.session import select_activities

CPU, CUDA, XPU = ProfilerActivity.CPU, ProfilerActivity.CUDA, ProfilerActivity.XPU


def test_everything_supported_is_recorded_by_default():
    assert select_activities(None).activities == supported_activities()


def test_members_and_filters_mix():
    selection = select_activities([CPU, {CUDA: ["GPU_MEMCPY"]}])
    assert selection.activities == {CPU, CUDA}
    assert selection.filters == {CUDA: {"GPU_MEMCPY"}}


def test_an_iterator_is_accepted_like_a_list():
    assert select_activities(iter([CPU])).activities == {CPU}


@pytest.mark.parametrize("twice", [[CPU, CPU], [CPU, {CPU: []}], [{CUDA: []}, CUDA]])
def test_an_activity_named_twice_is_a_value_error(twice):
    with pytest.raises(ValueError, match="more than once"):
        select_activities(twice)


@pytest.mark.parametrize("wrong", [["cpu"], [None], [{"cuda": []}], [[CPU]], [1]])
def test_an_activity_of_another_type_raises_a_type_error_that_shows_it(wrong):
    with pytest.raises(TypeError, match="ProfilerActivity"):
        select_activities(wrong)


def test_no_activity_is_a_kinetoscope_assertion_error():
    with pytest.raises(AssertionError, match="empty") as raised:
        select_activities([])
    assert isinstance(raised.value, SettingsError)


@pytest.mark.parametrize(("activities", "device"), [([CPU], None), ([CPU, CUDA], "cuda"), ([XPU], "xpu")])
def test_device_is_the_one_recorded_with_the_cpu(activities, device):
    assert select_activities(activities).device() == device


@pytest.mark.parametrize("types", [3, "cpu_op"])
def test_types_other_than_a_list_of_names_raise_a_type_error_with_accepted_types(types):
    with pytest.raises(TypeError, match="a list of the names"):
        select_activities([{ProfilerActivity.CPU: types}])
