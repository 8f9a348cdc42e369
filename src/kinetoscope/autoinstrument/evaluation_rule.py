"""Classification of DataLoader fetches into training and evaluation, which scripts do not declare."""

import weakref
from collections.abc import Callable
from typing import Any

from kinetoscope.sources.private_names import loader_dataset


class EvaluationRule:
    """Find evaluations by the iterators that are fetched from, and the times of training.

    An iterator that is fetched from while gradients are off belongs to an evaluation, and so does one that is fetched
    from again before a backward pass or optimizer step. accelerate and others fetch some batches ahead, however: if an
    iterator of the same dataset was trained on before, as many fetches in a row are allowed as there were then.
    """

    def __init__(self) -> None:
        self._last_iterator: Callable[[], Any] = lambda: None
        self._num_consecutive = 0
        self._is_last_trained = False
        """True if the last iterator was trained on; cached, because a look-up in a `WeakSet` takes longer."""

        self._trained: weakref.WeakSet[Any] = weakref.WeakSet()
        self._evaluated: weakref.WeakSet[Any] = weakref.WeakSet()
        """Iterators that were fetched from while gradients were off."""

        self._trained_datasets = set[int]()
        """Ids of the datasets, since a list has no weak references. A reused id costs some batches of an evaluation."""

        self._max_prefetched = 1
        """Maximum number of batches of an iterator that were fetched before the first was trained on."""

    def is_evaluation(self, iterator: object, *, has_gradients: bool) -> bool:
        """Return whether a fetch of this iterator belongs to an evaluation."""
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
        """Register that a backward pass or an optimizer has run on the last batch."""
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
    """Return the id of the dataset that a DataLoader's iterator reads."""
    return id(getattr(iterator, loader_dataset.attribute, None))
