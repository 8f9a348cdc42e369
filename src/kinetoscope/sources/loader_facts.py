"""Source of the settings and batch sizes of torch DataLoaders."""

import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from kinetoscope.formats.own_names import LOADER
from kinetoscope.hooks.loader_watch import DataLoaderWatch
from kinetoscope.recording.run.plugin_api import RunContext
from kinetoscope.recording.window.source_events import SourceEvent
from kinetoscope.sources.held_objects import own_attributes
from kinetoscope.sources.private_names import loader_dataset, loader_sampler, loader_settings
from kinetoscope.sources.window_source import WindowSource

_MAX_VISITED = 1_000
_PLAIN = (str, bytes, int, float, bool, type(None))

_name_of = type.__dict__["__qualname__"].__get__


class LoaderFacts(WindowSource):
    """Record the settings of each torch DataLoader that is fetched from in a window, as an instant after its first
    fetch there.

    Its args are ``dataset``, the class of the dataset, and ``batch_size``, ``num_workers``, ``prefetch_factor``,
    ``pin_memory`` (false without an accelerator, where it does nothing) and ``persistent_workers``, as far as the
    loader has them; ``tensors`` and ``bytes`` are the number of tensors of that batch and their size, unless it has
    objects of classes other than torch's and Python's. Loaders with equal settings are recorded once.
    """

    def __init__(self) -> None:
        super().__init__()
        self._watch: DataLoaderWatch | None = None

    def install(self, run: RunContext) -> None:
        self._watch = DataLoaderWatch(partial(self._fetch, run, _Loaders(run)))
        self._watch.install()

    def _fetch(self, run: RunContext, loaders: "_Loaders", fetch: Callable[[Any], Any], iterator: Any) -> Any:
        """Fetch a batch; record the loader after its first one."""
        batch = fetch(iterator)
        if loaders.last() is not iterator:
            run.call_in_hook(self, loaders.record, iterator, batch)
        return batch

    def remove(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.remove()


def _nothing() -> None:
    """A weak reference to nothing."""


class _Loaders:
    """The loaders seen in one window; none of them is kept alive."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()
        self._recorded: list[dict[str, Any]] = []
        self.last: Callable[[], Any] = _nothing
        """Gives the iterator that was seen last, as long as it lives."""

    def record(self, iterator: Any, batch: Any) -> None:
        """Record the loader of a new iterator, which has fetched ``batch``."""
        if self._run.is_recording:
            if iterator not in self._seen:
                self._record_new(iterator, batch)
            self.last = weakref.ref(iterator)

    def _record_new(self, iterator: Any, batch: Any) -> None:
        self._seen.add(iterator)
        facts = _facts(iterator)
        if facts not in self._recorded:
            self._recorded.append(facts)
            now_ns, tid = self._run.clock.monotonic_ns(), threading.get_native_id()
            self._run.add_event(SourceEvent("DataLoader", LOADER, now_ns, None, tid, facts | _size_of(batch)))


def _facts(iterator: Any) -> dict[str, Any]:
    """What torch's iterator knows of its loader. None of the user's code is called: their objects are not asked."""
    own = own_attributes(iterator)
    kind = type(iterator)
    if kind.__module__ == loader_dataset.module:  # another library's may leave some out
        for attribute in (loader_dataset, loader_sampler, *loader_settings.values()):
            if attribute.belongs_to(kind):
                attribute.check(own)
    sampler = own_attributes(loader_sampler.get(own))
    facts = {name: attribute.get(own) for name, attribute in loader_settings.items()}
    facts["batch_size"] = sampler.get("batch_size")
    facts = {name: value for name, value in facts.items() if type(value) in (int, bool)}
    dataset = loader_dataset.get(own)
    return facts if dataset is None else {"dataset": _name_of(type(dataset)), **facts}


def _size_of(batch: Any) -> dict[str, int]:
    """Return the number of tensors in a batch and their bytes; nothing if it has objects of unknown classes.

    Only plain containers and plain tensors are read, so no code of the user's runs.
    """
    tensor = getattr(sys.modules.get("torch"), "Tensor", None)
    num_tensors = num_bytes = 0
    to_visit = [batch]
    for _ in range(_MAX_VISITED):
        if not to_visit:
            return {"tensors": num_tensors, "bytes": num_bytes}
        part = to_visit.pop()
        if type(part) is tensor:
            num_tensors += 1
            num_bytes += part.element_size() * part.numel()
        elif type(part) is dict:
            to_visit += part.values()
        elif type(part) in (list, tuple):
            to_visit += part
        elif type(part) not in _PLAIN:
            break
    return {}
