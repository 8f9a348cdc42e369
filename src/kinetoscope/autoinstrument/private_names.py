"""Private names of CPython, and the feature that is off where one is missing."""

from kinetoscope.core.background.private_names import PrivateObject

register_thread_exit = PrivateObject(
    "threading", "_register_atexit", "a run under `kinetoscope run` is saved only after Python has started to shut down"
)
