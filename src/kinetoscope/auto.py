"""``import kinetoscope.auto`` records the training of a script that says nothing else of us: see `unmodified`."""

from kinetoscope.autoinstrument.instrumentation import watch_process

watch_process()
