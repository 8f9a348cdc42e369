"""Recording of an unchanged script by ``import kinetoscope.auto``: see `autoinstrument`."""

from kinetoscope.autoinstrument.instrumentation import watch_process

watch_process()
