"""A reference for `kinetoscope.frames.tracks.nest_spans`: a sweep over the spans of each track, with a stack."""


def nest_spans(spans, *, clip=False):
    """Return ``self_ns``, ``parent`` and ``depth`` of each ``(begin, end, track)``; with ``clip``, its length, too."""
    order = sorted(range(len(spans)), key=lambda row: (spans[row][2], spans[row][0], -spans[row][1]))
    found, stack, last_track = {}, [], None
    for row in order:
        begin, end, track = spans[row]
        if track != last_track:
            stack, last_track = [], track
        # A span that ends before this one can contain nothing later that this one does not contain too.
        while stack and (stack[-1]["end"] <= begin or (not clip and stack[-1]["end"] < end)):
            stack.pop()
        if clip and stack:
            end = min(end, stack[-1]["end"])
        parent = stack[-1] if stack else None
        if parent is not None:
            parent["self_ns"] -= max(0, end - max(begin, parent["covered_until"]))
            parent["covered_until"] = max(end, parent["covered_until"])
        span = {"row": row, "begin": begin, "end": end, "covered_until": begin, "self_ns": end - begin}
        span |= {"parent": None if parent is None else parent["row"], "depth": len(stack)}
        found[row] = span
        stack.append(span)
    columns = ("self_ns", "parent", "depth")
    rows = (found[row] for row in range(len(spans)))
    return [tuple(span[name] for name in columns) + ((span["end"] - span["begin"],) if clip else ()) for span in rows]
