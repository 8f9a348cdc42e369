"""analysis/ranks/clock_alignment.py: times of all ranks are on rank 0's clock, as far as traces or collectives tell."""

import json
from dataclasses import replace

import pytest

import kinetoscope
from kinetoscope.analysis.ranks.ranks import RankRow, combine_rank_rows
from kinetoscope.cli import main
from trainsim import START_NS, Settings, simulate

SECOND = 10**9
HOURS_NS = 3 * 3600 * SECOND


def write_with_clocks(run, folder, bound_ns=700):
    """Traces whose headers have the measurements of ranks: their clocks relative to rank 0's."""
    for rank, path in zip(run.ranks, run.write(folder), strict=True):
        moments = [0, SECOND]
        own = [rank.clock_ns(moment) - START_NS for moment in moments]
        beside = {
            "measurements": [[own_ns, moment - own_ns, bound_ns] for moment, own_ns in zip(moments, own, strict=True)],
            "reference": [0, START_NS, 0],
            "same_clock": rank.rank == 0,
            "bound_ns": bound_ns if rank.rank else 0,
        }
        anchors = [{"monotonic_ns": own_ns, "unix_ns": START_NS + own_ns, "bound_ns": 0} for own_ns in own]
        trace = json.loads(path.read_text())
        trace["kinetoscope"] = {"rank": rank.rank, "clock": {"anchors": anchors, "beside_rank0": beside}}
        path.write_text(json.dumps(trace))
    return folder


def far_apart(**settings):
    """Ranks with clocks hours apart, which drift."""
    run = simulate(Settings(num_steps=6, **settings))
    ranks = [replace(rank, offset_ns=rank.rank * HOURS_NS, drift_ppm=rank.rank * 40.0) for rank in run.ranks]
    return replace(run, ranks=tuple(ranks))


def assert_begins_are_true(run, report, within_ns):
    truth = {(row["rank"], row["step"]): row["begin_ns"] for row in run.truth.steps}
    found = {(row.rank, row.step): row.begin_ns for row in report.steps}
    assert found.keys() == truth.keys()
    assert max(abs(found[key] - truth[key]) for key in truth) <= within_ns


@pytest.mark.parametrize("has_device", [True, False])
def test_steps_and_collectives_are_on_the_clock_that_was_measured_during_the_run(has_device, tmp_path):
    run = far_apart(num_ranks=3, has_device=has_device)
    report = kinetoscope.analyze(write_with_clocks(run, tmp_path), cache=False)
    assert_begins_are_true(run, report, 20)  # microseconds of the file are as exact as three decimals
    truth = sorted(START_NS + min(row["starts_ns"].values()) for row in run.truth.collectives if row["step"])
    found = sorted(min(row.starts_ns) for row in report.collectives if row.step)
    assert [one - other for one, other in zip(found, truth, strict=True)] == pytest.approx([0] * len(truth), abs=20)
    assert all(row.num_ranks == 3 for row in report.collectives if row.step)


def test_a_replay_of_ranks_with_clocks_hours_apart_takes_as_long_as_the_run(tmp_path):
    run = far_apart(num_ranks=2)
    report = kinetoscope.analyze(write_with_clocks(run, tmp_path), cache=False)
    assert report.graph.time_ns(report.graph.replay()) < 1.2 * run.time_ns


def test_ranks_with_never_compared_clocks_are_aligned_by_their_collectives(tmp_path):
    run = simulate(Settings(num_ranks=4, offset_ns=5_000_000))
    run.write(tmp_path)
    report = kinetoscope.analyze(tmp_path, cache=False)
    assert_begins_are_true(run, report, 20)
    assert [row.clock_bound_ns for row in report.ranks][1:] != [None] * 3


def test_a_rank_alone_keeps_its_clock(tmp_path):
    run = simulate(Settings(num_ranks=1))
    run.write(tmp_path)
    report = kinetoscope.analyze(tmp_path, cache=False)
    assert_begins_are_true(run, report, 0)
    assert report.ranks[0].clock_bound_ns is None


@pytest.mark.parametrize("bounds_ns", [(700, 9000, None), (9000, 700, 800)])
def test_a_rank_says_how_sure_its_clock_is_at_worst_of_all_its_windows(bounds_ns):
    (row,) = combine_rank_rows([RankRow(rank=1, num_steps=2, clock_bound_ns=bound_ns) for bound_ns in bounds_ns])
    assert (row.clock_bound_ns, row.num_steps) == (9000, 6)


def write_with_offset(folder, offset_ns, **settings):
    """Traces of two ranks of different hosts, the second one's clock ahead by ``offset_ns``."""
    run = simulate(Settings(num_steps=6, num_ranks=2, ranks_per_host=1, **settings))
    write = replace(run, ranks=(run.ranks[0], replace(run.ranks[1], offset_ns=offset_ns))).write
    return [str(path) for path in write(folder)]


@pytest.mark.parametrize("offset_ns", [40_000_000, -40_000_000])
@pytest.mark.parametrize("is_merged", [False, True])
def test_check_and_summary_name_clocks_that_differ_by_40_ms(tmp_path, capsys, offset_ns, is_merged):
    paths = write_with_offset(tmp_path, offset_ns)
    if is_merged:
        kinetoscope.merge_traces(tmp_path / "merged.json", *paths)
        paths = [str(tmp_path / "merged.json")]
    assert main(["check", *paths]) == 1
    sentence = "The clocks of ranks differ by up to 40.0 ms, by the ends of their collectives: rank 1."
    assert f"  clock: {sentence}" in capsys.readouterr().out
    notes = kinetoscope.analyze(paths, cache=False).run["notes"]
    assert f"{sentence} Their times were moved so that these end together." in notes


@pytest.mark.parametrize("has_device", [True, False])
def test_check_and_summary_say_nothing_of_clocks_that_agree(tmp_path, capsys, has_device):
    paths = write_with_offset(tmp_path, 200_000, has_device=has_device)
    assert main(["check", *paths]) == 0
    assert "clock" not in capsys.readouterr().out
    assert not [note for note in kinetoscope.analyze(paths, cache=False).run["notes"] if "clocks of" in note]


def test_check_compares_the_clocks_of_files_that_it_can_load(tmp_path, capsys):
    paths = write_with_offset(tmp_path, 40_000_000)
    (tmp_path / "rank9.json").write_text('{"traceEvents": [{"ph": "X", "ts"')
    assert main(["check", *paths, str(tmp_path / "rank9.json")]) == 1
    assert "differ by up to 40.0 ms" in capsys.readouterr().out
