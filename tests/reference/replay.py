"""A reference for `kinetoscope.analysis.replay.replay.replay_times`: each node after all nodes that it waits for."""

from graphlib import TopologicalSorter

from kinetoscope.analysis.replay.replay import DROPPED


def replay_times(times, edges):
    """Return the new times; an edge is its source, its target, its weight and its weight after the change."""
    to = {node: [] for node in range(len(times))}
    for source, target, weight, changed in edges:
        to[target].append((source, weight, changed))
    replayed = list(times)
    for node in TopologicalSorter({node: [edge[0] for edge in found] for node, found in to.items()}).static_order():
        before = max((times[source] + weight for source, weight, _ in to[node]), default=times[node])
        kept = [replayed[source] + changed for source, _, changed in to[node] if changed != DROPPED]
        replayed[node] = max(kept, default=times[node]) + times[node] - before
    return replayed
