"""Point-to-point calls of a window: sender and receiver of each, and the clock shifts that they bound."""

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from kinetoscope.analysis.windows.columns import build_frame, constant_column
from kinetoscope.analysis.windows.window import RankWindow

SEND = "send"
"""The name of a call in which one rank sends to another."""

_DIRECTIONS = (SEND, "recv")
_PEER_IN_TITLE = r"(?:->|<-)\s*(\d+)$"
"""ProcessGroupNCCL names its calls ``nccl:send 0->1`` and ``nccl:recv 1<-0``, by ranks of the group."""

_DETAILED = "record_param_comms"
_SIDES_IN_ARGS = {"source": "Src Rank", "destination": "Dst Rank"}
_CALLS_ON_CPU = {"gloo:send": "c10d::send", "gloo:recv": "c10d::recv_"}
_PEER_IN_INPUTS = '$["Concrete Inputs"][2]'


def find_channels(window: RankWindow, calls: pl.DataFrame) -> pl.DataFrame:
    """Return for each call ``channel``, ``source`` and ``destination``.

    Calls of a channel follow each other in the same order on all of its ranks: those of a group, or of a sender and a
    receiver. A call with an unknown peer has a channel of its rank alone, as has one with an unknown group where the
    rank is in groups with different ranks. Source and destination are None for calls of a whole group.

    Args:
        window: the window of the calls.
        calls: ``group``, ``direction`` (``send``, ``recv`` or another name), and ``peer``, a rank of the group or null.
    """
    unknown = _name_channel_of_rank(window.rank, None) if _has_different_groups(window) else None
    if not calls["direction"].is_in(list(_DIRECTIONS)).any():
        nothing = (constant_column(name, None, pl.Int64, len(calls)) for name in ("source", "destination"))
        channel = calls["group"] if unknown is None else calls["group"].fill_null(unknown)
        return build_frame(channel.alias("channel"), *nothing)
    members = _members_by_group(window)
    rows = [
        _channel(window.rank, group, direction, _global_peer(window.rank, members.get(group), peer), unknown)
        for group, direction, peer in calls.select("group", "direction", "peer").iter_rows()
    ]
    schema = {"channel": pl.String, "source": pl.Int64, "destination": pl.Int64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _name_channel_of_rank(rank: int | None, group: str | None) -> str:
    return f"{group or ''} of rank {rank}"


def _has_different_groups(window: RankWindow) -> bool:
    """Return whether the rank is in groups of several ranks with different members."""
    return len({frozenset(ranks) for ranks in window.trace.process_groups.values() if len(ranks) != 1}) > 1


def _channel(
    rank: int | None, group: str | None, direction: str | None, peer: int | None, unknown: str | None
) -> tuple[str | None, int | None, int | None]:
    if direction not in _DIRECTIONS:
        return group or unknown, None, None
    if rank is None or peer is None:
        return _name_channel_of_rank(rank, group), None, None
    source, destination = (rank, peer) if direction == SEND else (peer, rank)
    return f"{group or ''} {source}->{destination}", source, destination


def _members_by_group(window: RankWindow) -> Mapping[str | None, Sequence[int]]:
    groups = window.trace.process_groups
    return {**groups, **({None: next(iter(groups.values()))} if len(groups) == 1 else {})}


def _global_peer(rank: int | None, members: Sequence[int] | None, peer: int | None) -> int | None:
    """Return the peer's rank in the run; the peer in a group of two needs no name."""
    if members is None or rank not in members:
        return None
    if peer is not None:
        return members[peer] if peer < len(members) else None
    others = [member for member in members if member != rank]
    return others[0] if len(others) == 1 else None


def parse_peers_of_titles(titles: pl.Series) -> pl.Series:
    """Return the peers in the titles of NCCL's calls."""
    return titles.str.extract(_PEER_IN_TITLE).cast(pl.Int64).alias("peer")


def parse_peers_of_args(window: RankWindow, calls: pl.DataFrame) -> pl.Series:
    """Return the peers in the args of spans of calls.

    Args:
        window: the window of the calls.
        calls: spans of ``record_param_comms``: ``begin``, ``track``, ``collective``.
    """
    directions = calls["collective"].cast(pl.String).str.strip_chars('"')
    if not directions.is_in(list(_DIRECTIONS)).any():
        return constant_column("peer", None, pl.Int64, len(calls))
    args = pl.col("args").cast(pl.String)
    sides = {name: args.str.json_path_match(f'$["{arg}"]').cast(pl.Int64) for name, arg in _SIDES_IN_ARGS.items()}
    spans = window.trace.spans.filter(pl.col("name") == _DETAILED)
    found = spans.select("track", begin="ts", **sides).unique(["begin", "track"]).collect()
    rows = calls.select("begin", "track").hstack([directions.alias("direction")])
    rows = rows.join(found, on=["begin", "track"], how="left", maintain_order="left")
    peer = pl.when(pl.col("direction") == SEND).then("destination").otherwise("source")
    return rows.select(peer=pl.when(pl.col("direction").is_in(list(_DIRECTIONS))).then(peer))["peer"]


def find_cpu_peers(window: RankWindow, calls: pl.DataFrame) -> pl.Series:
    """Return the peers of gloo's ``calls``, in the order of ``begin``, where shapes were recorded.

    torch then records the arguments of the operator around each call (``name``, ``begin``).
    """
    peers: list[int | None] = [None] * len(calls)
    for name, operator in _CALLS_ON_CPU.items():
        indexes = [index for index, own in enumerate(calls["name"]) if own == name]
        if not indexes:
            continue
        found = window.trace.spans.filter(pl.col("name") == operator).select(
            begin="ts", peer=pl.col("args").cast(pl.String).str.json_path_match(_PEER_IN_INPUTS)
        )
        operators = found.drop_nulls("begin").collect().sort("begin")
        begins = calls["begin"].gather(indexes)
        if len(operators) == len(indexes) and (operators["begin"] <= begins).all():
            for index, peer in zip(indexes, operators["peer"].cast(pl.Int64, strict=False), strict=True):
                peers[index] = peer
    return pl.Series("peer", peers, dtype=pl.Int64)


def bound_clock_shifts(parts: pl.DataFrame, known: Mapping[int, int]) -> dict[int, tuple[int, int]]:
    """Return the clock shifts of further ranks to the common clock, and the bounds of their errors.

    A receive ends after its send started: messages in both directions bound the difference of two clocks from below
    and from above. Where a receive waited, its bound is as tight as the transfer is short.

    Args:
        parts: the parts of calls of two ranks: ``call``, ``rank``, ``source``, ``begin``, ``end``.
        known: shifts of the ranks that are on the common clock.
    """
    sends = parts.filter(pl.col("rank") == pl.col("source")).select("call", "begin", sender="rank")
    receives = parts.filter(pl.col("rank") != pl.col("source")).select("call", "end", receiver="rank")
    latest = (
        sends.join(receives, on="call")
        .group_by("sender", "receiver")
        .agg(min_delays_ns=(pl.col("end") - pl.col("begin")).min())
        .iter_rows()
    )
    min_delays_ns: dict[tuple[int, int], Any] = {(sender, receiver): ns for sender, receiver, ns in latest}
    found: dict[int, tuple[int, int]] = {}
    for (sender, receiver), ns in sorted(min_delays_ns.items()):
        reverse_ns = min_delays_ns.get((receiver, sender))
        if sender in known and receiver not in known and receiver not in found and reverse_ns is not None:
            ahead = (ns - reverse_ns) // 2  # by how much the receiver's clock is ahead of the sender's
            found[receiver] = known[sender] - ahead, (ns + reverse_ns) // 2
    return found
