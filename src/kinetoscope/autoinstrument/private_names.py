"""Private names of CPython, and the feature that is off where one is missing."""

from kinetoscope.core.background.private_names import PrivateObject

register_thread_exit = PrivateObject(
    "threading", "_register_atexit", "a training under `kinetoscope run` is saved when Python has begun to end"
)
