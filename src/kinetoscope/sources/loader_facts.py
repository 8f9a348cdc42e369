"""Settings and batch sizes of torch DataLoaders."""

import sys
import threading
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any

from kinetoscope.formats.trace_names import LOADER
from kinetoscope.hooks.loader_watch import DataLoaderWatch
from kinetoscope.recording.run.plugin_api import RunContext
from kinetoscope.recording.window.source_events import SourceEvent
from kinetoscope.sources.private_names import loader_dataset, loader_sampler, loader_settings
from kinetoscope.sources.retained_objects import read_instance_dict
from kinetoscope.sources.window_source import WindowSource

_MAX_VISITED = 1_000
_PLAIN = (str, bytes, int, float, bool, type(None))

_get_qualname = type.__dict__["__qualname__"].__get__


class LoaderFacts(WindowSource):
    """Record the settings of each torch DataLoader that is fetched from in a window, once per setting.

    They are an instant after the loader's first fetch. Its args are ``dataset`` (its class), ``batch_size``,
    ``num_workers``, ``prefetch_factor``, ``pin_memory`` (false without an accelerator, where it has no effect) and
    ``persistent_workers``, as far as the loader has them. ``tensors`` and ``bytes`` are the number and size of the
    batch's tensors, unless it contains objects of classes other than torch's and Python's.
    """

    def __init__(self) -> None:
        super().__init__()
        self._watch: DataLoaderWatch | None = None

    def install(self, run: RunContext) -> None:
        """Intercept the fetches of DataLoaders."""
        self._watch = DataLoaderWatch(partial(self._fetch, run, _SeenLoaders(run)))
        self._watch.install()

    def _fetch(self, run: RunContext, loaders: "_SeenLoaders", fetch: Callable[[Any], Any], iterator: Any) -> Any:
        """Fetch a batch, and record its loader after the first one."""
        batch = fetch(iterator)
        if loaders.last() is not iterator:
            run.call_in_hook(self, loaders.record, iterator, batch)
        return batch

    def remove(self) -> None:
        """Stop intercepting fetches."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.remove()


def _dead_reference() -> None:
    """Return None, as a dead weak reference does."""


class _SeenLoaders:
    """Loaders that were fetched from in one window; none is kept alive."""

    def __init__(self, run: RunContext) -> None:
        self._run = run
        self._seen: weakref.WeakSet[Any] = weakref.WeakSet()
        self._recorded: list[dict[str, Any]] = []
        self.last: Callable[[], Any] = _dead_reference
        """Weak reference to the iterator that fetched last."""

    def record(self, iterator: Any, batch: Any) -> None:
        """Record the loader of a new iterator, which has fetched ``batch``."""
        if self._run.is_recording:
            if iterator not in self._seen:
                self._record_new(iterator, batch)
            self.last = weakref.ref(iterator)

    def _record_new(self, iterator: Any, batch: Any) -> None:
        self._seen.add(iterator)
        settings = _read_settings(iterator)
        if settings not in self._recorded:
            self._recorded.append(settings)
            now_ns, tid = self._run.clock.monotonic_ns(), threading.get_native_id()
            self._run.add_event(SourceEvent("DataLoader", LOADER, now_ns, None, tid, settings | _measure_batch(batch)))


def _read_settings(iterator: Any) -> dict[str, Any]:
    """Return the loader's settings from torch's iterator, without running user code."""
    attributes = read_instance_dict(iterator)
    kind = type(iterator)
    if kind.__module__ == loader_dataset.module:  # iterators of other libraries may lack some
        for attribute in (loader_dataset, loader_sampler, *loader_settings.values()):
            if attribute.belongs_to(kind):
                attribute.check(attributes)
    sampler = read_instance_dict(loader_sampler.get(attributes))
    settings = {name: attribute.get(attributes) for name, attribute in loader_settings.items()}
    settings["batch_size"] = sampler.get("batch_size")
    settings = {name: value for name, value in settings.items() if type(value) in (int, bool)}
    dataset = loader_dataset.get(attributes)
    return settings if dataset is None else {"dataset": _get_qualname(type(dataset)), **settings}


def _measure_batch(batch: Any) -> dict[str, int]:
    """Return the number of tensors in a batch and their bytes; empty if it has objects of unknown classes.

    Only plain containers and plain tensors are read, so no user code runs.
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
