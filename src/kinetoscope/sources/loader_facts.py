"""sources: how the DataLoaders are set up from which batches are fetched."""

import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from kinetoscope.formats.own_names import LOADER
from kinetoscope.recording.contract import RunInside
from kinetoscope.recording.loader_watch import DataLoaderWatch
from kinetoscope.recording.source_events import SourceEvent
from kinetoscope.sources.held_objects import own_attributes
from kinetoscope.sources.private_names import loader_dataset, loader_sampler, loader_settings
from kinetoscope.sources.window_source import WindowSource

_name_of = type.__dict__["__qualname__"].__get__


class LoaderFacts(WindowSource):
    """Records how each torch DataLoader is set up from which a batch is fetched in a window, as an instant at its first
    fetch there.

    Its args are ``dataset``, the class of the dataset, and ``batch_size``, ``num_workers``, ``prefetch_factor``,
    ``pin_memory`` (false without an accelerator, where it does nothing) and ``persistent_workers``, as far as the
    loader has them. Loaders that are set up alike are recorded once.
    """

    def __init__(self) -> None:
        super().__init__()
        self._watch: DataLoaderWatch | None = None

    def install(self, run: RunInside) -> None:
        self._watch = DataLoaderWatch(partial(self._fetch, run, _Loaders(run)))
        self._watch.install()

    def _fetch(self, run: RunInside, loaders: "_Loaders", fetch: Callable[[Any], Any], iterator: Any) -> Any:
        """Fetches a batch, the first time after noting the loader."""
        if loaders.last() is not iterator:
            run.call_in_hook(self, loaders.look, iterator)
        return fetch(iterator)

    def remove(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.remove()


def _nothing() -> None:
    """A weak reference to nothing."""


class _Loaders:
    """The loaders seen in one window; none of them is kept alive."""

    def __init__(self, run: RunInside) -> None:
        self._run = run
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()
        self._noted: list[dict[str, Any]] = []
        self.last: Callable[[], Any] = _nothing
        """Gives the iterator that was seen last, as long as it lives."""

    def look(self, iterator: Any) -> None:
        """Notes the loader of an iterator that is new."""
        if self._run.is_recording:
            if iterator not in self._seen:
                self._note(iterator)
            self.last = weakref.ref(iterator)

    def _note(self, iterator: Any) -> None:
        self._seen.add(iterator)
        facts = _facts(iterator)
        if facts not in self._noted:
            self._noted.append(facts)
            now_ns, tid = self._run.clock.monotonic_ns(), threading.get_native_id()
            self._run.note(SourceEvent("DataLoader", LOADER, now_ns, None, tid, facts))


def _facts(iterator: Any) -> dict[str, Any]:
    """What torch's iterator knows of its loader. None of the user's code is called: their objects are not asked."""
    own = own_attributes(iterator)
    kind = type(iterator)
    if kind.__module__ == loader_dataset.module:  # another library's may leave some out
        for attribute in (loader_dataset, loader_sampler, *loader_settings.values()):
            if attribute.is_of(kind):
                attribute.check(own)
    sampler = own_attributes(loader_sampler.get(own))
    facts = {name: attribute.get(own) for name, attribute in loader_settings.items()}
    facts["batch_size"] = sampler.get("batch_size")
    facts = {name: value for name, value in facts.items() if type(value) in (int, bool)}
    dataset = loader_dataset.get(own)
    return facts if dataset is None else {"dataset": _name_of(type(dataset)), **facts}
