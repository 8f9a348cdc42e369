"""Interleaved measurement of candidates, in nanoseconds of each round.

All candidates take turns in many short rounds, in a different order each time, so that other load affects all alike.
Compare the results only within one run.
"""

import gc
import itertools
import math
import random
import statistics
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

Loop = Callable[[int], int]
"""Does the thing that many times, and returns the nanoseconds it took."""

EMPTY_LOOP = "empty loop"
_WARM_UP_DIVISOR = 10
_INTERVAL = 1.96  # standard errors on each side
_MAX_CALLS = 20_000  # a round's records stay in memory until it ends


@dataclass(frozen=True)
class Candidate:
    """Something to measure. ``round`` is a context around one round; its setup is not timed.

    ``over`` names the candidate whose time is subtracted from this one's: the empty loop, or the plain call.
    """

    name: str
    round: Callable[[], AbstractContextManager[Loop]]
    over: str = EMPTY_LOOP


@dataclass(frozen=True)
class Timings:
    """Nanoseconds per call, of each candidate in each round."""

    rounds_ns: Mapping[str, Sequence[float]]

    def best_ns(self, name: str) -> float:
        """Return the fastest round, which was disturbed least."""
        return min(self.rounds_ns[name])

    def median_ns(self, name: str) -> float:
        return statistics.median(self.rounds_ns[name])

    def cost_ns(self, candidate: Candidate) -> float:
        """Return the best round of a candidate, minus the best round of the candidate in ``over``."""
        return self.best_ns(candidate.name) - self.best_ns(candidate.over)

    def median_cost_ns(self, candidate: Candidate) -> float:
        """Return the median of the same difference, taken within each round."""
        pairs = zip(self.rounds_ns[candidate.name], self.rounds_ns[candidate.over], strict=True)
        return statistics.median(measured_ns - base_ns for measured_ns, base_ns in pairs)

    def slow_down(self, name: str, base: str) -> float:
        """Return the median over the rounds by which fraction ``name`` takes longer than ``base``."""
        pairs = zip(self.rounds_ns[name], self.rounds_ns[base], strict=True)
        return statistics.median(measured_ns / base_ns for measured_ns, base_ns in pairs) - 1

    def slow_down_interval(self, name: str, base: str) -> tuple[float, float]:
        """Return the 95 % confidence interval of `slow_down`."""
        ratios = sorted(
            measured_ns / base_ns
            for measured_ns, base_ns in zip(self.rounds_ns[name], self.rounds_ns[base], strict=True)
        )
        margin = math.ceil(_INTERVAL * math.sqrt(len(ratios)) / 2)  # a round is above the median in half of all cases
        middle = len(ratios) // 2
        low, high = max(0, middle - margin), min(len(ratios) - 1, middle + margin)
        return ratios[low] - 1, ratios[high] - 1

    def summary(self) -> dict[str, dict[str, float]]:
        """Return the best and the median time of each candidate as measured, with nothing subtracted."""
        return {
            name: {"best": round(self.best_ns(name), 2), "median": round(self.median_ns(name), 2)}
            for name in self.rounds_ns
        }


def make_statement(
    name: str,
    text: str,
    around: Callable[[], AbstractContextManager[Mapping[str, Any]]],
    over: str = EMPTY_LOOP,
) -> Candidate:
    """Return a candidate that runs ``text`` with the local variables that ``around`` yields."""

    @contextmanager
    def open_round() -> Iterator[Loop]:
        with around() as variables:
            yield _make_loop(text, variables)

    return Candidate(name, open_round, over)


@contextmanager
def provide_variables(**variables: Any) -> Iterator[Mapping[str, Any]]:
    """Yield variables for a statement that needs no setup; use as ``partial(provide_variables, marker=...)``."""
    yield variables


def make_empty_loop() -> Candidate:
    """Return the loop around every statement, with nothing in it."""
    return make_statement(EMPTY_LOOP, "pass", provide_variables)


def measure(candidates: Sequence[Candidate], *, rounds: int, round_ms: float, collect_garbage: bool = False) -> Timings:
    """Measure all candidates, interleaved, in ``rounds`` rounds of about ``round_ms`` milliseconds each.

    Python's garbage collector is off while a round is timed, unless ``collect_garbage``.
    """
    counts = {candidate.name: _calibrate(candidate, round_ms * 1e6) for candidate in candidates}
    rounds_ns: dict[str, list[float]] = {candidate.name: [] for candidate in candidates}
    with _freeze_objects(collect_garbage):
        for number in range(rounds):
            for candidate in random.Random(number).sample(candidates, len(candidates)):
                rounds_ns[candidate.name].append(_time(candidate, counts[candidate.name]))
                gc.collect()
    return Timings(rounds_ns)


def _time(candidate: Candidate, count: int) -> float:
    with candidate.round() as loop:
        if count > 1:
            loop(max(1, count // _WARM_UP_DIVISOR))
        elapsed = loop(count)
    _check_no_hooks(candidate)
    return elapsed / count


def _check_no_hooks(candidate: Candidate) -> None:
    """Raise if a candidate leaves a hook installed, which would slow all the others."""
    if sys.getprofile() is not None or sys.gettrace() is not None:
        raise RuntimeError(f"The candidate {candidate.name!r} left a profile or trace function installed.")


def _calibrate(candidate: Candidate, round_ns: float) -> int:
    """Return the number of calls of the candidate that fit into a round."""
    count = 1
    with candidate.round() as loop:
        loop(1)
        while (elapsed := loop(count)) < round_ns / 4 and count < _MAX_CALLS:
            count *= 2
    return max(1, min(_MAX_CALLS, round(count * round_ns / max(elapsed, 1))))


@contextmanager
def _freeze_objects(enabled: bool) -> Iterator[None]:
    """Freeze the existing objects, so that collections between the rounds are short."""
    was_enabled = gc.isenabled()
    gc.collect()
    gc.freeze()
    if not enabled:
        gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()


def _make_loop(text: str, variables: Mapping[str, Any]) -> Loop:
    return partial(_compile_loop(text, tuple(variables)), **variables)


@lru_cache
def _compile_loop(text: str, variables: tuple[str, ...]) -> Callable[..., int]:
    source = (
        f"def loop(count, {', '.join(variables)}):\n"
        "    begin = now()\n"
        "    for _ in repeat(None, count):\n"
        f"{textwrap.indent(text, ' ' * 8)}\n"
        "    return now() - begin\n"
    )
    namespace: dict[str, Any] = {"now": time.perf_counter_ns, "repeat": itertools.repeat}
    exec(compile(source, "<benchmark>", "exec"), namespace)
    return namespace["loop"]
