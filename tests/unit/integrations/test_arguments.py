"""The arguments of `kinetoscope.profile`, as all integrations take them."""

from inspect import signature

import pytest

from kinetoscope.api import profile
from kinetoscope.integrations.arguments import ProfileArguments, ProfileOptions


def test_all_arguments_of_profile_can_be_given():
    assert [*signature(profile).parameters] == ["out", *ProfileOptions.__annotations__]


def test_an_unknown_argument_is_refused_at_once():
    with pytest.raises(TypeError, match="shedule"):
        ProfileArguments("runs/mine", shedule=None)


def test_an_argument_that_cannot_work_is_refused_by_profile(tmp_path):
    with pytest.raises(ValueError, match="out is the folder"):
        ProfileArguments(3).make_profiler()


@pytest.mark.parametrize("options", [{}, {"overwrite": True}])
def test_each_training_of_a_process_has_a_folder_of_its_own(tmp_path, options):
    arguments = ProfileArguments(tmp_path / "run", torch=False, system=False, quiet=True, **options)
    for number in ("", "2", "3"):
        with arguments.make_profiler() as profiler:
            for _ in profiler.batches(range(14)):
                pass
        assert (tmp_path / "run" / number / "traces" / "merged_trace.json.gz").exists()
    again = ProfileArguments(tmp_path / "run", torch=False, system=False, quiet=True, **options)
    assert again.make_profiler().state.run_name == ("run" if options else "4")
