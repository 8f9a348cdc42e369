"""Errors of our functions do not reach the training that calls them."""

import subprocess
import sys

import pytest

from kinetoscope.hooks.training_safe import training_safe


def test_an_error_is_logged_and_does_not_reach_training(caplog):
    training_safe(lambda: 1 / 0)()
    assert "Training continues" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_error_callback_gets_the_arguments_and_may_raise():
    def on_error(number: int, *, by: int) -> None:
        assert (number, by) == (1, 0)
        raise  # as a strict run does

    with pytest.raises(ZeroDivisionError):
        training_safe(lambda number, *, by: number / by, on_error)(1, by=0)


def test_it_returns_nothing_and_lets_ctrl_c_through():
    def interrupt() -> None:
        raise KeyboardInterrupt

    assert training_safe(lambda: 3)() is None
    with pytest.raises(KeyboardInterrupt):
        training_safe(interrupt)()


PROGRAM = """
import weakref
from kinetoscope.hooks.training_safe import training_safe

class Loop:
    pass

loop = Loop()
gone = weakref.ref(loop, training_safe(print))
loop.itself = loop  # deleted with its module, when Python exits
"""


def test_it_does_nothing_while_python_exits():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
