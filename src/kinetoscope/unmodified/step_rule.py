"""When a step of a training ends that does not say so: by its optimizers' steps, and by what it fetches."""

import weakref
from collections import Counter
from collections.abc import Callable

from kinetoscope.unmodified.settings import CountBy

_MOST_UNFETCHED = 16


class StepRule:
    """Counts steps by what is seen of a training.

    A step ends when a DataLoader is asked for data after an optimizer's step: so accumulated batches are one step, and
    so are the optimizers of a GAN. Where there is no DataLoader, each step of the first optimizer ends one. A training
    that has one, but takes 16 steps of that optimizer without a fetch, has its data in memory: these are 16 steps, and
    so it stays.

    Where optimizers count, an earlier training's may be the first one. If it is gone, or another one of the same
    parameters takes 16 steps and it takes none, that one is the first from then on.
    """

    def __init__(self, count_by: CountBy | None, *, has_loader: bool) -> None:
        self.counts_by: CountBy = count_by or ("fetch" if has_loader else "optimizer")
        self._may_change = count_by is None
        self._leader: Callable[[], object] = lambda: None
        self._without_leader = Counter[int]()
        """How many steps each other optimizer has taken since the first one has."""

        self._has_stepped = False
        self._unfetched = 0

    def optimizer_stepped(self, optimizer: object) -> int:
        """Notes a step of an optimizer; returns how many steps of the training end with it."""
        self._has_stepped = True
        num_steps = self._steps_of_leader(optimizer)
        if self.counts_by == "optimizer" or not num_steps:
            return num_steps
        self._unfetched += num_steps
        if self._unfetched < _MOST_UNFETCHED or not self._may_change:
            return 0
        self.counts_by = "optimizer"
        return self._unfetched

    def _steps_of_leader(self, optimizer: object) -> int:
        """How many steps of the first optimizer this is: several if it turns out to be that."""
        if self._leader() is optimizer:
            self._without_leader.clear()
            return 1
        self._without_leader[id(optimizer)] += 1
        num_steps = self._without_leader[id(optimizer)]
        if not self._is_over(optimizer, num_steps):
            return 0
        self._leader = weakref.ref(optimizer)
        self._without_leader.clear()
        return num_steps

    def _is_over(self, optimizer: object, num_steps: int) -> bool:
        """Whether there is no training of the first optimizer, or none any more, after so many of another one's."""
        leader = self._leader()
        return leader is None or (
            num_steps == _MOST_UNFETCHED and not _parameters(leader).isdisjoint(_parameters(optimizer))
        )

    def fetches(self) -> bool:
        """Notes that a DataLoader is asked for data; returns whether a step ends with it."""
        is_end = self._has_stepped and self.counts_by == "fetch"
        self._has_stepped, self._unfetched = False, 0
        if self.counts_by == "fetch":
            self._without_leader.clear()
        return is_end


def _parameters(optimizer: object) -> set[int]:
    return {id(parameter) for group in getattr(optimizer, "param_groups", ()) for parameter in group["params"]}
