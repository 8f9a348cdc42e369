"""handlers: a cycle and the one trace that was contributed to it, by C. A Cycle flows in; what writes it flows out."""

from typing import TYPE_CHECKING

from kinetoscope.formats.chrome import ChromeWriter
from kinetoscope.handlers.cycle_events import lasting_events, thread_events, thread_names
from kinetoscope.handlers.native_drain import Drain
from kinetoscope.recording.cycle import Cycle
from kinetoscope.recording.recorder_choice import IS_PURE

if TYPE_CHECKING or not IS_PURE:
    from kinetoscope.merge.cycle_text import CycleText, read_cycle_text


def cycle_text(cycle: Cycle) -> "CycleText | None":
    """The cycle and its file as one text; None where there are none or several, or where only Python can do it."""
    if IS_PURE or len(cycle.files) != 1:
        return None
    drain = Drain(cycle)
    others = [thread for thread in cycle.threads if drain.plan(thread) is None]

    def write_ours(writer: ChromeWriter) -> None:
        writer.write(lasting_events(cycle))
        for thread in others:
            writer.write(thread_events(cycle, thread))
        drain.write(writer)

    return read_cycle_text(str(cycle.files[0]), write_ours, list(thread_names(cycle)))
