"""SIGTERM and SIGHUP in a process that was forked from a run's."""

import os
import signal

import pytest

from kinetoscope.recording.markers.process import TerminationHandler


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_dataloader_worker_forked_during_a_save_dies_of_a_signal_at_once(number):
    reached, write_end = os.pipe()

    def save():
        os.write(write_end, b"saved")
        return False  # the parent's answer while it saves: it waits for the end of the save

    handler = TerminationHandler(save)
    handler.install()
    try:
        if (child := os.fork()) == 0:
            os.kill(os.getpid(), number)
            os._exit(0)
        _, status = os.waitpid(child, 0)
    finally:
        handler.remove()
    os.close(write_end)
    assert os.waitstatus_to_exitcode(status) == -number
    assert os.read(reached, 5) == b"", "the worker must not save its parent's trace"
    os.close(reached)
