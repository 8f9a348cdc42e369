"""recording: markers, found again by what they were asked for with. However many names come, few are kept."""

import weakref
from typing import Any

from kinetoscope.clock.clock import Clock
from kinetoscope.recording import compiler
from kinetoscope.recording.marker import Marker, MarkerSettings
from kinetoscope.recording.process import this_process
from kinetoscope.recording.recorder import MOST_NAMES
from kinetoscope.recording.recorder_choice import ProcessRecorder
from kinetoscope.training.once_log import OnceLog

MOST_IDLE = 4096


class KnownMarkers:
    """Each marker that somebody holds, has started or is in, and of the others some thousands: the latest.

    ``recent`` has those that are held here, so that the usual look-up is one in a dict.
    """

    def __init__(self) -> None:
        self.recent: dict[Any, Marker] = {}
        self._living: weakref.WeakValueDictionary[Any, Marker] = weakref.WeakValueDictionary()

    def get(self, key: object) -> Marker | None:
        """The marker of that key, if it is still known."""
        known = self.recent.get(key)
        if known is None and (known := self._living.get(key)) is not None:
            known = self.add(key, known)
        return known

    def add(self, key: object, marker: Marker) -> Marker:
        """The marker that stands for ``key`` from now on: ``marker``, unless another thread was quicker."""
        if len(self.recent) >= MOST_IDLE:
            self._forget_idle(marker.name)
        known = self.recent.setdefault(key, marker)
        self._living[key] = known
        return known

    def living(self) -> list[Marker]:
        """All markers there are."""
        return [marker for reference in self._living.valuerefs() if (marker := reference()) is not None]

    def _forget_idle(self, name: str) -> None:
        """Lets go of those that nobody else holds."""
        _warn_of_many(name)
        recent, self.recent = self.recent, {}
        for marker in recent.values():
            marker.rest()


class ProfilerMarkers:
    """The markers of one profiler, and the recorder that they record into. They last as long as the profiler."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.recorder = ProcessRecorder(clock)
        self._known = KnownMarkers()
        self._once = OnceLog()

    def get(self, asked: MarkerSettings, kind: type[Marker] = Marker) -> Marker:
        """The marker with these settings, of ``kind`` where it is made now. Of one that is there, the settings stay; if
        others are asked for, a warning says so once."""
        known = self._known.get(asked.key)
        if known is None:
            compiler.teach_dynamo(kind)
            return self._known.add(asked.key, kind(self.recorder, asked))
        if asked not in (known.settings, MarkerSettings(asked.name, args=asked.args)):
            message = "Marker %r exists with %s; now asked for with %s: the first stay."
            subject = (asked, known.settings)
            self._once.warn(message, asked.name, known.settings, asked, about=subject)
        return known


def _warn_of_many(name: str) -> None:
    this_process.once.warn(
        "More than %d different markers were asked for; the latest is %r. Each new name takes time and memory, and "
        "once %d have been recorded, the digits of further ones become #. Give such markers one name, and put what "
        'changes into a counter, as in marker("step").counter({"number": 7}). The batch is in the args of every '
        "span anyway.",
        MOST_IDLE,
        name,
        MOST_NAMES,
    )
