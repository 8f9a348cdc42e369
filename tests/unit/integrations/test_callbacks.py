"""Requirements of trainers on our classes without a run: they can be pickled, and import nothing."""

import copy
import pickle
import subprocess
import sys

import pytest

from kinetoscope.errors import SettingsError
from kinetoscope.integrations import accelerate, lightning, transformers

CLASSES = [
    accelerate.ProfileKwargs,
    lightning.KinetoscopeCallback,
    lightning.KinetoscopeProfiler,
    transformers.KinetoscopeCallback,
]
IMPORTS = """
import sys
from kinetoscope.integrations.{name} import *
print(*sys.modules.keys() & {{"torch", "lightning", "transformers", "accelerate", "IPython", "polars"}})
"""


@pytest.mark.parametrize("kind", CLASSES)
def test_it_can_be_copied_and_sent_to_another_process_before_training(kind):
    for other in (copy.deepcopy(kind("runs/mine", quiet=True)), pickle.loads(pickle.dumps(kind("runs/mine")))):
        assert type(other) is kind


@pytest.mark.parametrize("kind", CLASSES)
def test_an_unknown_argument_is_refused_at_once(kind):
    with pytest.raises(TypeError, match="shedule"):
        kind("runs/mine", shedule=None)


@pytest.mark.parametrize("kind", CLASSES[1:])
def test_the_number_of_the_first_step_is_the_trainers_to_say(kind):
    with pytest.raises(SettingsError, match="first_step=7 has no effect: the trainer sets"):
        kind("runs/mine", first_step=7)


@pytest.mark.parametrize("kind", CLASSES[1:])
def test_uninformative_events_exist_and_other_names_do_not(kind):
    made = kind("runs/mine")
    with pytest.raises(AttributeError):
        made.something_else
    if kind is not lightning.KinetoscopeProfiler:
        assert hasattr(made, "on_some_later_event")


@pytest.mark.parametrize("name", ["accelerate", "lightning", "transformers", "notebook"])
def test_nothing_is_imported_before_it_is_used(name):
    done = subprocess.run([sys.executable, "-c", IMPORTS.format(name=name)], capture_output=True, text=True)
    assert (done.stdout.strip(), done.stderr) == ("", "")
