"""report/page/communication.py: collective calls in groups, and who waited for whom."""

from kinetoscope.analysis.ranks.collectives import CollectiveRow
from kinetoscope.report.page.communication import build_communication, build_waits

KIB = 1024


def call(**values):
    plain = {
        "group": "0",
        "sequence": None,
        "step": 1,
        "name": "all_reduce",
        "bytes": None,
        "num_ranks": 2,
        "ranks": (0, 4),
        "starts_ns": (0, 30),
        "ends_ns": (100, 100),
        "skew_ns": 30,
        "transfer_ns": 70,
        "waits_ns": None,
        "late_rank": None,
        "bandwidth_bytes_per_s": None,
    }
    return CollectiveRow(**plain | values)


def test_calls_are_summed_by_group_name_and_size_those_that_took_most_first():
    calls = [call(group="1"), call(bytes=KIB), call(bytes=KIB), call(name="send", skew_ns=None, transfer_ns=None)]
    groups = build_communication(calls).groups
    assert [(one.group, one.name, one.bytes, one.total_ns) for one in groups] == [
        ("0", "all_reduce", KIB, 200),
        ("1", "all_reduce", None, 100),
        ("0", "send", None, 100),
    ]
    assert (groups[0].skew_ns, groups[0].transfer_ns, groups[0].skew_share) == (60, 140, 0.3)
    assert (groups[2].skew_ns, groups[2].transfer_ns, groups[2].unknown_ns) == (None, None, 100)


def test_many_sizes_are_put_together_by_powers_of_two():
    groups = build_communication([call(bytes=kib * KIB) for kib in (3, 5, 6, 7, 9, 10, 11, 12, 17)]).groups
    assert [(one.bytes // KIB, one.is_at_least, one.num_calls) for one in groups] == [
        (8, True, 4),
        (4, True, 3),
        (2, True, 1),
        (16, True, 1),
    ]


def test_unknown_part_of_all_calls_is_reported_and_is_no_transfer():
    unknown = call(name="all_to_all", starts_ns=(0, 0), ends_ns=(300, 300), skew_ns=None, transfer_ns=None)
    found = build_communication([call(), unknown])
    assert found.summary == "2 calls took 0.0004 ms: 8 % waiting for the last rank, 18 % transfer, 75 % unknown."
    assert found.total_ns == found.skew_ns + found.transfer_ns + found.unknown_ns == 400


def test_without_calls_there_is_nothing_to_say():
    assert build_communication([]) is None


def test_waits_are_summed_by_who_waited_and_for_whom():
    waited = [(4, (30, 0)), (4, (10, 0)), (0, (0, 5))]
    found = build_waits([*(call(late_rank=rank, waits_ns=waits_ns) for rank, waits_ns in waited), call()])
    assert (found.ranks, found.waited) == ([0, 4], [[0, 40], [5, 0]])
    assert [(one.rank, one.num_calls, one.total_ns, one.max_ns) for one in found.delaying] == [
        (4, 2, 40, 30),
        (0, 1, 5, 5),
    ]
