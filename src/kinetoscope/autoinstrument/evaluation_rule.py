"""Which fetches of DataLoaders are those of an evaluation, which a training does not say either."""

import weakref
from collections.abc import Callable
from typing import Any

from kinetoscope.sources.private_names import loader_dataset


class EvaluationRule:
    """Finds evaluations by what is fetched, and by when the training trains.

    An iterator that is asked while gradients are off is an evaluation's. So is one that is asked again before anybody
    has trained on it. But accelerate and others fetch some batches ahead: if there was a training on its dataset
    before, it may be asked as often as the iterators of that one were.
    """

    def __init__(self) -> None:
        self._last_iterator: Callable[[], Any] = lambda: None
        self._num_consecutive = 0
        self._is_last_trained = False
        """Whether it is known already that the last one was trained on; a look into a `WeakSet` takes longer."""

        self._trained: weakref.WeakSet[Any] = weakref.WeakSet()
        self._evaluated: weakref.WeakSet[Any] = weakref.WeakSet()
        """Those that were asked while gradients were off."""

        self._trained_datasets = set[int]()
        """Their ids: a list can be held in no other way that lets it go. One that takes the place of another in memory
        costs some batches of an evaluation."""

        self._max_prefetched = 1
        """How many batches of an iterator were fetched before anybody trained on the first of them, at most."""

    def is_evaluation(self, iterator: object, *, has_gradients: bool) -> bool:
        """Whether a fetch of this iterator is one of an evaluation."""
        if self._last_iterator() is not iterator:
            self._last_iterator, self._num_consecutive, self._is_last_trained = weakref.ref(iterator), 0, False
        self._num_consecutive += 1
        if not has_gradients:
            self._evaluated.add(iterator)
            return True
        if (
            self._num_consecutive == 1
            or self._is_last_trained
            or not self._trained_datasets
            or iterator in self._trained
        ):
            return False
        return _find_dataset_id(iterator) not in self._trained_datasets or self._num_consecutive > self._max_prefetched

    def mark_trained(self) -> None:
        """Notes that a backward pass or an optimizer has run, on what was fetched last."""
        iterator = self._last_iterator()
        if self._is_last_trained or iterator is None or iterator in self._evaluated:
            return
        self._is_last_trained = True
        if iterator in self._trained:
            return
        self._trained.add(iterator)
        self._trained_datasets.add(_find_dataset_id(iterator))
        self._max_prefetched = max(self._max_prefetched, self._num_consecutive)


def _find_dataset_id(iterator: object) -> int:
    return id(getattr(iterator, loader_dataset.attribute, None))
