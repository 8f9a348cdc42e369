"""table: spans in two halves. Begins and ends flow in, in the order of time; the duration of each begin flows out."""

from collections import defaultdict
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Pairs:
    """``durations`` of begins, by their rows; ``num_cut`` begins have no end, and ``num_stray`` ends no begin."""

    rows: list[int] = field(default_factory=list)
    durations: list[int] = field(default_factory=list)
    num_cut: int = 0
    num_stray: int = 0


def pair_halves(halves: Iterable[tuple[int, Hashable, bool, int]], last_ns: int) -> Pairs:
    """Pairs each end with the latest open begin of its key; begins that stay open end at ``last_ns``.

    A half is its row, its key (the track, or an id), whether it is a begin, and its time in nanoseconds.
    """
    pairs = Pairs()
    stacks: defaultdict[Hashable, list[tuple[int, int]]] = defaultdict(list)
    for row, key, is_begin, time_ns in halves:
        stack = stacks[key]
        if is_begin:
            stack.append((row, time_ns))
        elif stack:
            begin_row, begin_ns = stack.pop()
            pairs.rows.append(begin_row)
            pairs.durations.append(time_ns - begin_ns)
        else:
            pairs.num_stray += 1
    for stack in stacks.values():
        pairs.num_cut += len(stack)
        pairs.rows += [row for row, _ in stack]
        pairs.durations += [max(0, last_ns - begin_ns) for _, begin_ns in stack]
    return pairs
