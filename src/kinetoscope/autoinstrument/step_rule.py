"""Steps and training runs of a script that marks neither, found by optimizer steps and fetches."""

import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kinetoscope.autoinstrument.settings import CountBy

MIN_STEPS_OF_TRAINING = 16
"""Steps of an optimizer without one of the leader that make it the leader; critics of a GAN take 5 to 15."""

_MAX_PENDING_STEPS = 2 * MIN_STEPS_OF_TRAINING


@dataclass(frozen=True)
class FirstSteps:
    """Steps of a training run that ended before it was identified: their ends in monotonic nanoseconds.

    ``rule`` counts its further steps.
    """

    rule: "StepRule"
    ends_ns: list[int]


@dataclass
class _Candidate:
    """An optimizer that has stepped since the leading one did; ``num_pending`` steps were pending before."""

    optimizer: Callable[[], object]
    shares_parameters: bool
    num_pending: int
    ends_ns: list[int] = field(default_factory=list)
    num_unfetched: int = 0


class StepRule:
    """Count the steps of a training run, and find the run that follows it.

    A step ends with the first fetch after an optimizer's step, so accumulated batches are one step, and so are the
    optimizers of a GAN. Where there is no DataLoader, each step of the leading optimizer ends one. A run that has a
    DataLoader, but takes 16 steps of that optimizer without a fetch, has its data in memory: these are 16 steps, and
    from then on its optimizer counts.

    Another optimizer of the run's parameters becomes the leader when the leading one is freed, or has not stepped while
    the other one has 16 times. If it shares no parameter, it starts another training run then: its steps are pending
    until this is decided, and ``next_run`` has them. Optimizers that have alternated once belong to one run.

    With ``by_backward``, no optimizer has stepped in this process: a fetch after a backward pass ends a step, until one
    does.
    """

    def __init__(
        self,
        count_by: CountBy | None,
        *,
        has_loader: bool,
        by_backward: bool = False,
        now_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self.counts_by: CountBy = count_by or ("fetch" if has_loader else "optimizer")
        self.next_run: FirstSteps | None = None
        """Training run that has started in place of this one, whose steps this rule no longer counts."""
        self._count_by: CountBy | None = count_by
        self._now_ns = now_ns
        self._counts_backward = by_backward
        self._leader: Callable[[], object] = lambda: None
        self._parameters: dict[int, Callable[[], object]] = {}
        """Weak references to the parameters of the run's optimizers, by id."""
        self._candidates: list[_Candidate] = []
        self._companions: weakref.WeakSet[Any] = weakref.WeakSet()
        self._pending_ends_ns: list[int] = []
        """Ends of steps of the loop in which only candidates of another run had stepped."""
        self._has_stepped = self._has_candidate_stepped = False
        self._unfetched = 0

    # -- optimizers --

    def on_optimizer_step(self, optimizer: object) -> int:
        """Handle a step of an optimizer; return how many steps of the run end with it."""
        self._counts_backward = False
        leader = self._leader()
        if leader is optimizer:
            return self._release() + self._count_leader(1)
        if leader is None and (not self._parameters or optimizer in self._companions):
            return self._lead(optimizer)
        if optimizer in self._companions:
            self._has_stepped = True
            return 0
        candidate = self._find_candidate(optimizer)
        if candidate is None:
            num_released = self._release_if_freed()
            candidate = self._add_candidate(optimizer)
        else:
            num_released = 0
        candidate.ends_ns.append(self._now_ns())
        candidate.num_unfetched += 1
        return num_released + self._count_candidate(candidate, optimizer)

    def _count_leader(self, num_steps: int) -> int:
        """Count steps of the leading optimizer; return how many steps of the run end with them."""
        self._has_stepped = True
        if self.counts_by == "optimizer":
            return num_steps
        self._unfetched += num_steps
        if self._unfetched < MIN_STEPS_OF_TRAINING or self._count_by is not None:
            return 0
        self.counts_by = "optimizer"
        return self._unfetched

    def _count_candidate(self, candidate: _Candidate, optimizer: object) -> int:
        """Count a step of a candidate, which may become the leader or start the next run."""
        is_over = self._leader() is None or len(candidate.ends_ns) >= MIN_STEPS_OF_TRAINING
        if candidate.shares_parameters:
            self._has_stepped = True
            num_released = self._release(except_one=candidate)
            if not is_over:
                return num_released
            num_steps = len(candidate.ends_ns) if self.counts_by == "optimizer" else candidate.num_unfetched
            return num_released + self._lead(optimizer, num_steps)
        self._has_candidate_stepped = True
        if len(candidate.ends_ns) >= MIN_STEPS_OF_TRAINING:
            self.next_run = self._make_next_run(candidate, optimizer)
        return 0

    def _lead(self, optimizer: object, num_steps: int = 1) -> int:
        """Make an optimizer the leader, and count its steps so far."""
        self._leader = weakref.ref(optimizer)
        self._parameters |= _index_parameters(optimizer)
        self._candidates.clear()
        return self._count_leader(num_steps)

    def _find_candidate(self, optimizer: object) -> _Candidate | None:
        return next((one for one in self._candidates if one.optimizer() is optimizer), None)

    def _add_candidate(self, optimizer: object) -> _Candidate:
        if (leader := self._leader()) is not None:
            self._parameters |= _index_parameters(leader)  # it may have got more since it became the leader
        shares = any(
            reference() is _find_alive(self._parameters, number)
            for number, reference in _index_parameters(optimizer).items()
        )
        candidate = _Candidate(weakref.ref(optimizer), shares, len(self._pending_ends_ns))
        self._candidates.append(candidate)
        return candidate

    def _make_next_run(self, candidate: _Candidate, optimizer: object) -> FirstSteps:
        """Return the run that starts with the first step of this optimizer."""
        fetched_ns = self._pending_ends_ns[candidate.num_pending :]
        rule = StepRule(self._count_by, has_loader=bool(fetched_ns), now_ns=self._now_ns)
        rule._companions.update(self._companions)
        if (leader := self._leader()) is not None:
            rule._companions.add(leader)
        rule._leader, rule._parameters = weakref.ref(optimizer), _index_parameters(optimizer)
        for other in self._candidates:
            if other is not candidate:
                rule._add_companion(other)
        rule._has_stepped, rule._unfetched = True, candidate.num_unfetched
        return FirstSteps(rule, fetched_ns if rule.counts_by == "fetch" else candidate.ends_ns)

    # -- pending steps --

    def _add_companion(self, candidate: _Candidate) -> None:
        """Register that this optimizer alternates with others of the run."""
        if (optimizer := candidate.optimizer()) is not None:
            self._companions.add(optimizer)
            self._parameters |= _index_parameters(optimizer)

    def _release(self, except_one: _Candidate | None = None) -> int:
        """Assign the candidates, except one, to the run; return the number of pending steps."""
        if self._candidates in ([], [except_one]):
            return 0
        for candidate in self._candidates:
            if candidate is not except_one and not candidate.shares_parameters:
                self._add_companion(candidate)
        self._candidates = [] if except_one is None else [except_one]
        num_pending = len(self._pending_ends_ns) if self.counts_by == "fetch" else 0
        self._pending_ends_ns.clear()
        return num_pending

    def _release_if_freed(self) -> int:
        """Return the number of pending steps if all candidates were freed: they were too short to be a run."""
        if not self._candidates or any(one.optimizer() is not None for one in self._candidates):
            return 0
        return self.finish()

    def finish(self) -> int:
        """Return the number of pending steps of candidates that have not become a run."""
        num_steps = len(self._pending_ends_ns)
        if self.counts_by == "optimizer":
            becomes_leader = self._leader() is None
            num_steps = max((len(one.ends_ns) for one in self._candidates), default=0) if becomes_leader else 0
        self._candidates.clear()
        self._pending_ends_ns.clear()
        return num_steps

    # -- fetches --

    def on_backward(self) -> None:
        """Handle a backward pass."""
        self._has_stepped |= self._counts_backward

    def on_fetch(self) -> int:
        """Handle a fetch from a DataLoader; return how many steps of the run end with it."""
        num_steps = int(self._has_stepped and self.counts_by == "fetch")
        if self._has_candidate_stepped and not self._has_stepped:
            self._pending_ends_ns.append(self._now_ns())
            num_steps = self._release_oldest()
        self._has_stepped, self._has_candidate_stepped, self._unfetched = False, False, 0
        for candidate in self._candidates:
            candidate.num_unfetched = 0
        return num_steps

    def _release_oldest(self) -> int:
        """Return the number of steps that were pending for too long to belong to a run that starts."""
        num_steps = max(0, len(self._pending_ends_ns) - _MAX_PENDING_STEPS)
        del self._pending_ends_ns[:num_steps]
        for candidate in self._candidates:
            candidate.num_pending = max(0, candidate.num_pending - num_steps)
        return num_steps if self.counts_by == "fetch" else 0


def _index_parameters(optimizer: object) -> dict[int, Callable[[], object]]:
    """Return weak references to an optimizer's parameters, by id."""
    groups = getattr(optimizer, "param_groups", ())
    return {id(parameter): weakref.ref(parameter) for group in groups for parameter in group["params"]}


def _find_alive(parameters: dict[int, Callable[[], object]], number: int) -> object:
    """Return the parameter with this id if it is still alive, else an object that is no parameter."""
    reference = parameters.get(number)
    return parameters if reference is None or (parameter := reference()) is None else parameter
