"""Scopes of a training loop: the epochs and evaluations that are open."""

from contextvars import ContextVar
from typing import TypeVar

_evaluation: ContextVar[object] = ContextVar("kinetoscope_evaluation", default=None)
"""Evaluation in which the caller is, or last was: each thread and each task of asyncio has its own."""


class Epoch:
    """Epoch of a loop. ``is_implied``: it started because the loop called `step`."""

    __slots__ = ("is_implied", "iterable")

    def __init__(self, is_implied: bool = False) -> None:
        self.is_implied: bool = is_implied
        self.iterable: object = None
        """The source of the batches of a loop over `batches`; None in other loops."""


class Evaluation:
    """Evaluation in a loop. ``pauses``: it is between batches, and recording is paused until it ends."""

    __slots__ = ("_outer", "pauses")

    def __init__(self, pauses: bool) -> None:
        self.pauses: bool = pauses
        self._outer: object = None

    def enter(self) -> None:
        """Make it the evaluation of the caller."""
        self._outer = _evaluation.get()
        _evaluation.set(self)

    def leave(self) -> None:
        """Undo `enter`."""
        _evaluation.set(self._outer)


Scope = Epoch | Evaluation
ScopeType = TypeVar("ScopeType", Epoch, Evaluation)


class ScopeStack:
    """Scopes that are open, the last opened one last.

    Other threads and tasks than the one that trains may open evaluations, so a scope may end before a later one.
    """

    def __init__(self) -> None:
        self._open: list[Scope] = []
        self.epoch: Epoch | None = None
        """The current epoch. A generator that is closed late must not end a later one."""
        self.is_evaluating: bool = False
        """True while any thread or task evaluates."""

    def push(self, scope: ScopeType) -> ScopeType:
        """Open a scope, and return it."""
        self._open.append(scope)
        self._update()
        return scope

    def remove(self, scope: Scope) -> None:
        """End a scope, unless it has ended."""
        if scope in self._open:
            self._open.remove(scope)
            self._update()

    def _update(self) -> None:
        self.epoch = next((scope for scope in self._open if isinstance(scope, Epoch)), None)
        self.is_evaluating = any(isinstance(scope, Evaluation) for scope in self._open)

    @property
    def is_paused(self) -> bool:
        """True while an evaluation pauses recording."""
        return any(isinstance(scope, Evaluation) and scope.pauses for scope in self._open)

    def is_in_evaluation(self, *, is_on_loop: bool) -> bool:
        """Return whether the caller, which ``is_on_loop``'s thread or not, is in an evaluation.

        Evaluations that another thread or task has opened do not count on that of the loop.
        """
        return self.is_evaluating and (not is_on_loop or _evaluation.get() in self._open)
