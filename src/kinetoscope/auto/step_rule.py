"""When a step of a training ends that does not say so: by its optimizers' steps, and by what it fetches."""

from kinetoscope.auto.settings import CountBy

_MOST_UNFETCHED = 16


class StepRule:
    """Counts steps by what is seen of a training.

    A step ends when a DataLoader is asked for data after an optimizer's step: so accumulated batches are one step, and
    so are the optimizers of a GAN. Where there is no DataLoader, each step of the first optimizer ends one. A training
    that has one, but takes 16 steps of that optimizer without a fetch, has its data in memory: these are 16 steps, and
    so it stays.
    """

    def __init__(self, count_by: CountBy | None, *, has_loader: bool) -> None:
        self.counts_by: CountBy = count_by or ("fetch" if has_loader else "optimizer")
        self._may_change = count_by is None
        self._leader: int | None = None
        self._has_stepped = False
        self._unfetched = 0

    def optimizer_stepped(self, optimizer: object) -> int:
        """Notes a step of an optimizer; returns how many steps of the training end with it."""
        self._has_stepped = True
        if self._leader is None:
            self._leader = id(optimizer)
        if self._leader != id(optimizer):
            return 0
        if self.counts_by == "optimizer":
            return 1
        self._unfetched += 1
        if self._unfetched < _MOST_UNFETCHED or not self._may_change:
            return 0
        self.counts_by = "optimizer"
        return self._unfetched

    def fetches(self) -> bool:
        """Notes that a DataLoader is asked for data; returns whether a step ends with it."""
        is_end = self._has_stepped and self.counts_by == "fetch"
        self._has_stepped, self._unfetched = False, 0
        return is_end
