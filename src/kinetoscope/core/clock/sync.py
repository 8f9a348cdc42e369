"""Measurement of this process's clock relative to rank 0's, through the run's store.

Two processes exchange requests and replies through keys of the store; no collective is started. A reply has the times
of rank 0's clock when it received the request and when it replied. That clock is ahead by at most the first minus the
time of the request, and by at least the second minus the time at which the reply arrived. Of many requests, the one
with the narrowest gap counts; half its gap is the error bound.
"""

import ctypes
import hashlib
import itertools
import json
import os
import platform
import socket
import sys
import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from kinetoscope.core.clock.clock import Anchor, Clock, read_anchor
from kinetoscope.core.clock.proc import read_boot_id
from kinetoscope.core.clock.relation import (
    ClockRelation,
    Measurement,
    decode_relation,
    encode_relation,
    same_clock,
)

NUM_ROUND_TRIPS = 40
_IDLE_POLL_S, _BUSY_POLL_S = 0.1, 0.005
_POLLS_PER_CHECK = 10
_STEP_TIMEOUT = timedelta(seconds=2)
# The errors of a store that does not respond. torch's are RuntimeErrors.
STORE_ERRORS = (RuntimeError, OSError, LookupError, ValueError, TypeError)
_CLOCK_MONOTONIC = 1
_CLOCK_GETTIME = {"x86_64": 228, "aarch64": 113}
_SHIM_TOLERANCE_NS = 50_000_000


class Store(Protocol):
    """The part of the run's store (`torch.distributed.Store`) that is used here."""

    def set(self, key: str, value: str, /) -> Any:
        """Store a value under a key."""
        ...

    def get(self, key: str, /) -> bytes:
        """Return the value of a key."""
        ...

    def add(self, key: str, amount: int, /) -> int:
        """Add to a counter and return its new value."""
        ...

    def check(self, keys: Sequence[str], /) -> bool:
        """Return whether all keys exist."""
        ...

    def wait(self, keys: Sequence[str], timeout: timedelta, /) -> Any:
        """Wait until all keys exist."""
        ...

    def delete_key(self, key: str, /) -> bool:
        """Delete a key; return whether it existed."""
        ...


class ClockServer:
    """Rank 0's side: publishes its clock's identity and replies to the other ranks in turn.

    ``reference`` is a moment on its clock and in unix time.
    """

    def __init__(self, store: Store, prefix: str, clock: Clock, identity: str, world_size: int) -> None:
        self._store = store
        self._prefix = prefix
        # A new name, so that nothing an earlier run left in the store is read.
        self._run = f"{prefix}{uuid.uuid4().hex}/"
        self._clock = clock
        self._identity = identity
        self._world_size = world_size
        self._num_served = 0
        self.reference = read_anchor(clock)

    def serve(self, stop: threading.Event) -> None:
        """Answer until ``stop`` is set or all ranks share this clock; raise what the store raises."""
        self._offer()
        for poll in itertools.count():
            if stop.is_set() or (poll % _POLLS_PER_CHECK == 0 and self._all_share_clock()):
                break
            if not self._serve_next():
                stop.wait(_IDLE_POLL_S)

    def serve_remaining(self, timeout_s: float) -> None:
        """Serve ranks whose measurement has started and not ended, for ``timeout_s`` seconds."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until and self._count("measuring") > self._count("done"):
            if not self._serve_next():
                self._skip_exited()
                time.sleep(_BUSY_POLL_S)
        self._store.delete_key(f"{self._prefix}offer")

    def _offer(self) -> None:
        reference = [self.reference.monotonic_ns, self.reference.unix_ns, self.reference.bound_ns]
        offer = {"identity": self._identity, "reference": reference, "run": self._run}
        self._store.set(f"{self._prefix}offer", json.dumps(offer))

    def _all_share_clock(self) -> bool:
        """Return whether all other ranks have reported that they share this clock."""
        self._skip_exited()
        return self._count("sharing") >= self._world_size - 1

    def _skip_exited(self) -> None:
        """Skip a rank that exited between its ticket and its first request, so that later ranks do not wait for it."""
        if self._count("tickets") > self._num_served + 1 and not self._store.check([self._key("request", 0)]):
            self._num_served += 1

    def _count(self, name: str) -> int:
        return self._store.add(self._run + name, 0)

    def _key(self, message: str, number: int) -> str:
        return f"{self._run}{self._num_served + 1}/{message}{number}"

    def _serve_next(self) -> bool:
        """Reply to the next rank; return False if no rank has sent a request."""
        if not self._store.check([self._key("request", 0)]):
            return False
        with suppress(*STORE_ERRORS):  # that rank has exited
            for number in range(NUM_ROUND_TRIPS + 1):
                self._reply(number)
        self._num_served += 1
        return True

    def _reply(self, number: int) -> None:
        self._store.wait([self._key("request", number)], _STEP_TIMEOUT)
        received = self._clock.monotonic_ns()
        # The second moment is read as late as possible, just before the reply is sent.
        self._store.set(self._key("reply", number), f"{received} {self._clock.monotonic_ns()}")


class ClockClient:
    """The side of any other rank; one rank per clock measures, and others with that clock read its result."""

    def __init__(self, store: Store, prefix: str, clock: Clock, identity: str) -> None:
        self._store = store
        self._prefix = prefix
        self._clock = clock
        self._identity = identity
        self._run = self._clock_prefix = ""
        self._reference: Anchor | None = None
        self._is_measuring = False
        self.relation: ClockRelation | None = None
        """The relation so far; None if rank 0 has not answered yet."""

    def begin(self, timeout_s: float, stop: threading.Event) -> None:
        """Compare this rank's clock with rank 0's: find out whether they share one, else measure.

        Raises:
            TimeoutError: rank 0 did not answer in time, or before ``stop`` was set.
            Exception: the store's errors, `STORE_ERRORS`.
        """
        waiting = _Waiting(self._store, time.monotonic() + timeout_s, stop)
        waiting.wait_for(f"{self._prefix}offer")
        offer = json.loads(self._store.get(f"{self._prefix}offer"))
        self._run, self._clock_prefix = offer["run"], f"{offer['run']}clock/{self._identity}/"
        self._reference = Anchor(*offer["reference"])
        if offer["identity"] == self._identity:
            self._store.add(f"{self._run}sharing", 1)
            self.relation = same_clock(self._reference)
            return
        self._is_measuring = self._store.add(f"{self._clock_prefix}claims", 1) == 1
        if self._is_measuring:
            self._store.add(f"{self._run}measuring", 1)
        self._update(waiting)

    def update(self, timeout_s: float, stop: threading.Event) -> None:
        """Measure again, or read the result of the rank that measures this clock; raise as `begin` does."""
        if self._reference is not None and not (self.relation is not None and self.relation.is_same):
            self._update(_Waiting(self._store, time.monotonic() + timeout_s, stop))

    def end(self) -> None:
        """Report to rank 0 that this rank will not measure again; raise what the store raises."""
        if self._is_measuring:
            self._is_measuring = False
            self._store.add(f"{self._run}done", 1)

    def _update(self, waiting: "_Waiting") -> None:
        if self._is_measuring:
            self._add_measurement(self._measure(waiting))
            self._store.set(f"{self._clock_prefix}relation", json.dumps(encode_relation(self._require_relation())))
        else:
            waiting.wait_for(f"{self._clock_prefix}relation")
            self.relation = decode_relation(json.loads(self._store.get(f"{self._clock_prefix}relation")))

    def _require_relation(self) -> ClockRelation:
        assert self.relation is not None
        return self.relation

    def _add_measurement(self, measurement: Measurement) -> None:
        assert self._reference is not None
        current = self.relation or ClockRelation(measurement, measurement, self._reference)
        self.relation = current.with_latest(measurement)

    def _measure(self, waiting: "_Waiting") -> Measurement:
        exchange = f"{self._run}{self._store.add(f'{self._run}tickets', 1)}/"
        try:
            self._store.set(f"{exchange}request0", "")
            waiting.wait_for(f"{exchange}reply0")
            return min(
                (self._measure_round_trip(exchange, number + 1) for number in range(NUM_ROUND_TRIPS)),
                key=lambda measurement: measurement.bound_ns,
            )
        finally:
            self._delete_keys(exchange)

    def _measure_round_trip(self, exchange: str, number: int) -> Measurement:
        before_ns = self._clock.monotonic_ns()
        self._store.set(f"{exchange}request{number}", "")
        self._store.wait([f"{exchange}reply{number}"], _STEP_TIMEOUT)
        after_ns = self._clock.monotonic_ns()
        received, sent = map(int, self._store.get(f"{exchange}reply{number}").split())
        max_offset_ns, min_offset_ns = received - before_ns, sent - after_ns
        return Measurement(
            (before_ns + after_ns) // 2,
            (max_offset_ns + min_offset_ns) // 2,
            (max_offset_ns - min_offset_ns + 1) // 2 + 1,
        )

    def _delete_keys(self, exchange: str) -> None:
        with suppress(*STORE_ERRORS):
            for number in range(NUM_ROUND_TRIPS + 1):
                self._store.delete_key(f"{exchange}request{number}")
                self._store.delete_key(f"{exchange}reply{number}")


@dataclass(frozen=True, slots=True)
class _Waiting:
    """A wait for keys by polling: a store that waits itself prints an error when the time is up."""

    store: Store
    until: float
    stop: threading.Event

    def wait_for(self, key: str) -> None:
        while not self.store.check([key]):
            if time.monotonic() > self.until or self.stop.is_set():
                raise TimeoutError("rank 0 did not answer")
            time.sleep(_BUSY_POLL_S)


def clock_identity() -> str:
    """Return an id of this process's CLOCK_MONOTONIC, made of the machine's boot id and the time namespace.

    If a library replaces the clock (libfaketime, for example), the id is unique to the process.
    """
    parts = [read_boot_id() or socket.gethostname(), _time_namespace()]
    if _has_shim():
        parts.append(uuid.uuid4().hex)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _time_namespace() -> str:
    try:
        return os.readlink("/proc/self/ns/time")
    except OSError:
        return ""


def _has_shim() -> bool:
    """Return whether a library replaces the kernel's clock.

    It shows by libfaketime's name, or by a difference to the time of the kernel.
    """
    kernel_ns = _kernel_monotonic_ns()
    is_far_off = kernel_ns is not None and abs(time.monotonic_ns() - kernel_ns) > _SHIM_TOLERANCE_NS
    if is_far_off:
        return True
    try:
        return b"libfaketime" in Path("/proc/self/maps").read_bytes()
    except OSError:
        return False


def _kernel_monotonic_ns() -> int | None:
    number = _CLOCK_GETTIME.get(platform.machine()) if sys.platform == "linux" else None
    if number is None:
        return None
    seconds_and_ns = (ctypes.c_long * 2)()
    if ctypes.CDLL(None).syscall(number, _CLOCK_MONOTONIC, seconds_and_ns) != 0:
        return None
    return seconds_and_ns[0] * 10**9 + seconds_and_ns[1]
