"""merge/alignment.py: compared clocks are moved to rank 0's clock, and the merged trace says how exact that is."""

import json

import pytest

from kinetoscope.errors import TraceFileError
from kinetoscope.merge.merge_traces import merge_traces

UNIX_NS = 1_700_000_000 * 10**9
SECOND = 10**9
HOURS_NS = 3 * 3600 * SECOND


def trace(path, rank, events, *, ahead_ns=0, drift_ppm=0.0, measured_at=(0, 10 * SECOND), bound_ns=700, relation=True):
    """Return a rank's file of ten seconds. Its clocks, unix time too, are ``ahead_ns`` ahead of rank 0's at the start
    and run ``drift_ppm`` too fast; ``events`` are the true seconds at which spans of a millisecond start."""

    def own_ns(true_ns):
        return true_ns + ahead_ns + int(true_ns * drift_ppm / 1e6)

    beside = {
        "measurements": [[own_ns(moment_ns), moment_ns - own_ns(moment_ns), bound_ns] for moment_ns in measured_at],
        "reference": [0, UNIX_NS, 0],
        "same_clock": rank == 0,
    }
    anchors = [
        {"monotonic_ns": own_ns(moment_ns), "unix_ns": UNIX_NS + own_ns(moment_ns), "bound_ns": 0}
        for moment_ns in (0, 10 * SECOND)
    ]
    header = {
        "rank": rank,
        "world_size": 2,
        "clock": {"anchors": anchors, "beside_rank0": beside if relation else None},
    }
    spans = []
    for second in events:
        begin, end = own_ns(int(second * SECOND)), own_ns(int(second * SECOND) + 10**6)
        spans.append({"ph": "X", "name": "it", "pid": 1, "tid": 1, "ts": begin / 1000, "dur": (end - begin) / 1000})
    content = {"baseTimeNanoseconds": UNIX_NS, "kinetoscope": header, "traceEvents": spans}
    path.write_text(json.dumps(content))
    return path


def merge(tmp_path, *files):
    report = merge_traces(tmp_path / "merged.json", *files)
    merged = json.loads(report.output.read_text())
    base_ns = merged["baseTimeNanoseconds"] - UNIX_NS
    spans = {0: [], 1: []}
    for event in merged["traceEvents"]:
        if event["ph"] == "X":
            spans[event["pid"]].append((base_ns + round(event["ts"] * 1000), round(event["dur"] * 1000)))
    return spans, merged["kinetoscope"], report


@pytest.mark.parametrize(("ahead_ns", "drift_ppm"), [(HOURS_NS, 0.0), (-HOURS_NS, 100.0), (5000, -100.0), (0, 0.0)])
def test_events_of_one_moment_are_at_one_moment_however_far_the_clocks_are_off(tmp_path, ahead_ns, drift_ppm):
    moments = [0.0, 2.5, 9.9]
    files = [trace(tmp_path / "rank0.json", 0, moments)]
    files.append(trace(tmp_path / "rank1.json", 1, moments, ahead_ns=ahead_ns, drift_ppm=drift_ppm))
    spans, own, _ = merge(tmp_path, *files)
    for (one_ns, one_dur), (other_ns, other_dur) in zip(spans[0], spans[1], strict=True):
        assert abs(one_ns - other_ns) <= 1500  # the times in the files are whole microseconds to a double
        assert abs(one_dur - other_dur) <= 1500
    [clock] = own["clocks"]
    assert (clock["rank"], clock["bound_ns"]) == (1, 700)
    assert clock["drift_ppm"] == pytest.approx(-drift_ppm, abs=0.1)


def test_without_rank_0s_file_the_others_are_still_on_its_clock(tmp_path):
    spans, _, _ = merge(tmp_path, trace(tmp_path / "rank1.json", 1, [1.0], ahead_ns=HOURS_NS, drift_ppm=50))
    assert spans[1][0][0] == pytest.approx(SECOND, abs=1500)


def test_a_clock_that_was_never_compared_stays_and_the_trace_says_so(tmp_path):
    files = [trace(tmp_path / "rank0.json", 0, [1.0]), trace(tmp_path / "rank1.json", 1, [1.0], relation=False)]
    spans, own, report = merge(tmp_path, *files)
    assert spans[1] == spans[0]
    assert own["clocks"] == []
    assert "The times of rank 1 are by the clock of the rank's own host, which was not compared" in report.notes[0]


def test_never_compared_clocks_are_reported_in_one_sentence(tmp_path):
    files = [trace(tmp_path / f"rank{rank}.json", rank, [1.0], relation=rank == 0) for rank in range(100)]
    report = merge_traces(tmp_path / "merged.json", *files)
    assert [note[:30] for note in report.notes] == ["The times of ranks 1-99 are by"]


def test_clock_compared_once_is_aligned_with_a_growing_bound_noted_in_the_trace(tmp_path):
    files = [trace(tmp_path / "rank0.json", 0, [0.0])]
    files.append(trace(tmp_path / "rank1.json", 1, [0.0], ahead_ns=HOURS_NS, measured_at=(0, 0)))
    spans, own, report = merge(tmp_path, *files)
    assert spans[1] == spans[0]
    assert own["clocks"][0]["drift_ppm"] is None
    assert own["clocks"][0]["bound_ns"] == 700 + 10 * 200_000
    assert "The drift of the clock of rank 1 is unknown" in report.notes[0]


def damaged(tmp_path, damage):
    file = trace(tmp_path / "rank1.json", 1, [1.0], ahead_ns=5)
    content = json.loads(file.read_text())
    content["kinetoscope"]["clock"]["beside_rank0"] |= damage
    file.write_text(json.dumps(content))
    return file


def test_a_clock_that_is_not_complete_is_not_used(tmp_path):
    _, own, _ = merge(tmp_path, damaged(tmp_path, {"reference": None}))
    assert own["clocks"] == []


@pytest.mark.parametrize("measurements", [[[1]], "x", [[1, 2, -3]], [[2**70, 1, 1]]])
def test_clock_with_impossible_numbers_is_reported(tmp_path, measurements):
    file = damaged(tmp_path, {"measurements": measurements})
    with pytest.raises(TraceFileError, match=r"rank1[.]json: .* kinetoscope[.]clock[.]beside_rank0[.]measurements"):
        merge(tmp_path, file)


@pytest.mark.parametrize("bounds_ns", [(700, 9000), (9000, 700)])
def test_trace_has_the_largest_bound_of_a_ranks_files(tmp_path, bounds_ns):
    files = [trace(tmp_path / f"rank1-{bound_ns}.json", 1, [1.0], bound_ns=bound_ns) for bound_ns in bounds_ns]
    _, own, _ = merge(tmp_path, *files)
    assert [(clock["rank"], clock["bound_ns"]) for clock in own["clocks"]] == [(1, 9000)]
