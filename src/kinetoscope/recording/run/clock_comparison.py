"""Comparison of this rank's clock with rank 0's, and agreement on an id of the attempt, through the run's store.

It runs on its own thread: neither training nor the saving of traces waits for another rank.
"""

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kinetoscope.core.background.writer_thread import WriterThread
from kinetoscope.core.clock.clock import Clock
from kinetoscope.core.clock.relation import ClockRelation, same_clock
from kinetoscope.core.clock.sync import STORE_ERRORS, ClockClient, ClockServer, clock_identity
from kinetoscope.core.job.ranks import Attempt, Ranks, agree_on_attempt
from kinetoscope.recording.markers.process import hold_signals
from kinetoscope.recording.process_groups import find_store
from kinetoscope.recording.window.cycle import Cycle

_log = logging.getLogger("kinetoscope")
_START_TIMEOUT_S, _WINDOW_TIMEOUT_S, _LAST_TIMEOUT_S = 30.0, 5.0, 2.0


class ClockComparison:
    """Measure clock offsets at the start of the run and when a window closes, through the store of torch.distributed.

    With a single rank, or without a process group, it does nothing. If rank 0 does not answer, a cycle gets the last
    measured relation, or None. ``attempt`` may be replaced before `agree_on_id` and `start`.
    """

    def __init__(self, clock: Clock, ranks: Ranks, attempt: Attempt) -> None:
        self._clock = clock
        self._ranks = ranks
        self.attempt: Attempt = attempt
        self._agreements: list[Callable[[Any], object]] = []
        self._thread = WriterThread("kinetoscope-clock", on_error=self._report)
        self._stop = threading.Event()
        self._client: ClockClient | None = None
        self._relation: ClockRelation | None = None
        self._pending: dict[int, Callable[[], None]] = {}
        self._is_started = self._has_warned = self._is_comparing = False

    def agree_on_id(self, folder: str, set_id: Callable[[str], object]) -> None:
        """Let the ranks that write into ``folder`` agree on an id of this attempt. Call it before `start`.

        ``set_id`` is called with the id on another thread, once there is a store; without a store it is never called.
        """
        key = f"{self._prefix}attempt/{folder}/"
        identity = self._ranks.rank, self.attempt.start
        self._agreements.append(lambda store: set_id(agree_on_attempt(store, key, *identity)))

    def start(self) -> None:
        """Start to compare, if there are other ranks and a store. May be called again."""
        if self._is_started or self._ranks.world_size == 1 or (store := find_store()) is None:
            return
        self._is_started = True
        self._is_comparing = self._ranks.rank > 0
        job = self._run_server if self._ranks.rank == 0 else self._run_client
        self._thread.submit("Comparing clocks", lambda: job(_open_connection(store)))

    def forward(self, cycle: Cycle, deliver: Callable[[Cycle], None], *, measure: bool) -> None:
        """Deliver ``cycle`` with the latest clock relation, after one more measurement if ``measure``."""
        self.start()
        measure = measure and self._is_comparing
        if not measure and not self._pending:
            _deliver(cycle, self._get_relation(), deliver)
            return
        # In order, after the waiting cycles. The code that removes it from the dict delivers it: the job on the other
        # thread, or `finish_windows` when time is up.
        self._pending[cycle.number] = lambda: _deliver(cycle, self._get_relation(), deliver)
        self._thread.submit("Comparing clocks", lambda: self._measure_and_deliver(cycle.number, measure))

    def finish_windows(self, timeout_s: float) -> None:
        """Wait for current measurements, at most ``timeout_s``, and then deliver every cycle."""
        if self._pending:
            self._thread.drain(min(timeout_s, _WINDOW_TIMEOUT_S))
        for number in list(self._pending):
            self._deliver_pending(number)

    def finish(self, timeout_s: float) -> None:
        """End the comparison. Rank 0 answers a little longer, for ranks that are about to finish too."""
        client = self._client
        if client is not None:
            self._thread.submit("Comparing clocks", client.end)
        self._stop.set()
        self._thread.close(min(timeout_s, 2 * _LAST_TIMEOUT_S))
        self._disconnect()

    @property
    def _prefix(self) -> str:
        """The prefix of its keys in the store, which may outlive the attempt."""
        return f"kinetoscope/{self.attempt.restart}/"

    def _get_relation(self) -> ClockRelation | None:
        client = self._client  # read once: the other thread may set it to None
        return client.relation if client is not None else self._relation

    def _disconnect(self) -> None:
        """Keep the latest relation, and close the second connection to the store."""
        self._relation = self._get_relation()
        self._client, self._is_comparing = None, False

    def _run_agreements(self, store: Any) -> None:
        for agreement in self._agreements:
            with suppress(*STORE_ERRORS):  # then the id stays unknown, and merging reports how it separates attempts
                agreement(store)

    def _run_server(self, store: Any) -> None:
        """Answer the other ranks on rank 0, until the run ends."""
        server = ClockServer(store, self._prefix, self._clock, clock_identity(), self._ranks.world_size)
        self._relation = same_clock(server.reference)
        self._run_agreements(store)
        server.serve(self._stop)
        server.serve_remaining(_LAST_TIMEOUT_S)

    def _run_client(self, store: Any) -> None:
        """Start to measure the offset to rank 0's clock."""
        self._run_agreements(store)
        client = self._client = ClockClient(store, self._prefix, self._clock, clock_identity())
        client.begin(_START_TIMEOUT_S, self._stop)
        if client.relation is not None and client.relation.is_same:
            self._disconnect()

    def _measure_and_deliver(self, number: int, measure: bool) -> None:
        """Measure the offset once more, and deliver the cycle with this number."""
        client = self._client
        try:
            if measure and client is not None:
                client.update(_WINDOW_TIMEOUT_S, self._stop)
        finally:
            self._deliver_pending(number)

    def _deliver_pending(self, number: int) -> None:
        with hold_signals():  # an exception between the two calls would lose the cycle
            job = self._pending.pop(number, None)
            if job is not None:
                job()

    def _report(self, job: str, error: BaseException) -> None:
        if not self._has_warned and not self._stop.is_set():
            self._has_warned = True
            _log.warning(
                "Rank %d could not compare its clock with rank 0's (%s: %s). Its timestamps use its own host's clock.",
                self._ranks.rank,
                type(error).__name__,
                str(error).splitlines()[0] if str(error) else "no answer",
            )


def _deliver(cycle: Cycle, relation: ClockRelation | None, deliver: Callable[[Cycle], None]) -> None:
    cycle.relation = relation
    deliver(cycle)


def _open_connection(store: Any) -> Any:
    """Return a second connection to the store, so that waiting here does not block the one that training uses."""
    if hasattr(store, "clone"):
        return store.clone()
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    if hasattr(store, "host") and hasattr(store, "port"):
        return type(store)(store.host, store.port, None, False)
    return store
