"""Ranks that compare clocks through a real store, in one process, with known differences between the clocks."""

import threading
from contextlib import contextmanager
from datetime import timedelta

import pytest

from kinetoscope.core.clock.clock import SystemClock
from kinetoscope.core.clock.sync import ClockClient, ClockServer, clock_identity

distributed = pytest.importorskip("torch.distributed")
NEVER = threading.Event()


class OffsetClock(SystemClock):
    """The machine's clock with an offset."""

    def __init__(self, offset_ns):
        self.offset_ns = offset_ns

    def monotonic_ns(self):
        return SystemClock.monotonic_ns() + self.offset_ns


@pytest.fixture
def store():
    store = distributed.HashStore()
    store.set_timeout(timedelta(seconds=10))
    return store


@contextmanager
def rank_0(store, world_size=2):
    server, stop = ClockServer(store, "run/", SystemClock(), "rank 0's", world_size), threading.Event()

    def serve():
        server.serve(stop)
        server.serve_remaining(0.5)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield server
    finally:
        stop.set()
        thread.join()


def client(store, identity="another", offset_ns=0):
    return ClockClient(store, "run/", OffsetClock(offset_ns), identity)


def measured(store, **settings):
    rank = client(store, **settings)
    rank.begin(20, NEVER)
    return rank


@pytest.mark.parametrize("offset_ns", [0, 12_345, -(10**9), 7_200 * 10**9, -(10**16)])
def test_the_offset_is_within_its_bound(store, offset_ns):
    with rank_0(store):
        rank = measured(store, offset_ns=offset_ns)
        rank.update(20, NEVER)
        rank.end()
    for measurement in (rank.relation.first, rank.relation.latest):
        assert abs(measurement.offset_ns + offset_ns) <= measurement.bound_ns
    assert rank.relation.first.monotonic_ns < rank.relation.latest.monotonic_ns


def test_one_of_several_ranks_on_a_clock_measures_and_the_others_read(store):
    with rank_0(store, world_size=3):
        first = measured(store, offset_ns=5000)
        second = measured(store, offset_ns=5000)
        assert second.relation == first.relation
        first.update(20, NEVER)
        second.update(20, NEVER)
        assert second.relation == first.relation
        first.end()


def test_rank_on_rank_0s_clock_sends_no_request_and_rank_0_stops_listening(store):
    with rank_0(store) as server:
        rank = measured(store, identity="rank 0's")
        assert rank.relation.is_same
        assert rank.relation.reference == server.reference


def test_without_rank_0_the_others_give_up_in_time(store):
    with pytest.raises(TimeoutError):
        client(store).begin(0.05, NEVER)
    stop = threading.Event()
    stop.set()
    with pytest.raises(TimeoutError):
        client(store).begin(60, stop)


def test_a_rank_that_dies_before_its_request_does_not_delay_later_ranks(store):
    with rank_0(store) as server:
        rank = client(store)
        store.wait(["run/offer"], timedelta(seconds=10))
        store.add(f"{server._run}tickets", 1)
        rank.begin(20, NEVER)
        rank.end()
    assert rank.relation is not None


def test_a_second_run_through_the_same_store_does_not_see_the_first(store):
    for offset_ns in (1000, -(10**9)):
        with rank_0(store):
            rank = measured(store, offset_ns=offset_ns)
            rank.end()
        assert abs(rank.relation.latest.offset_ns + offset_ns) <= rank.relation.latest.bound_ns


def test_nothing_is_left_in_the_store_but_a_few_numbers(store):
    with rank_0(store):
        rank = measured(store)
        before = store.num_keys()
        for _ in range(3):
            rank.update(20, NEVER)
        assert store.num_keys() == before
        rank.end()


def test_this_process_has_the_clock_it_had_before():
    assert clock_identity() == clock_identity()
