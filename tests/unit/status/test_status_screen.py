"""Status of a run on a terminal and a page: abnormal ranks first, and no unknown values."""

from dataclasses import replace

import pytest
from rich.console import Console

from kinetoscope.pulse.stalls import BlockedCollective
from kinetoscope.status.hangs import Hang
from kinetoscope.status.health import RankStatus, RunState, RunStatus
from kinetoscope.status.status_screen import MAX_ROWS, build_status_screen
from kinetoscope.status.terminal import render_status

S = 1_000_000_000
RANK = RankStatus(
    rank=0,
    state=RunState.RECORDING,
    host="node-1",
    pid=1,
    start="start",
    is_stopped=False,
    hang=None,
    num_steps=1205,
    step=1204,
    behind=0,
    phase="data_wait",
    phase_ns=12 * S,
    quiet_ns=12 * S,
    step_ns=46_200_000.0,
    run_step_ns=45_000_000.0,
    resident_bytes=3 << 30,
    device_bytes=None,
    loss=0.25,
    samples_per_s=None,
    tokens_per_s=None,
)


def status(*ranks, state=RunState.RECORDING, world_size=None, **more):
    return RunStatus(state=state, attempt=0, world_size=world_size or len(ranks), ranks=[*ranks], **more)


def printed(now, width=120):
    console = Console(width=width, highlight=False)
    with console.capture() as capture:
        console.print(render_status(now, width))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_a_healthy_rank_has_a_headline_and_a_line():
    assert printed(build_status_screen(status(RANK))) == [
        "running: 1 rank, step 1,204, 46.2 ms/step (last 32 steps; 45.0 ms over the run)",
        "",
        "rank  state     step  phase         for    takes  over run  loss   memory",
        "   0  running  1,204  data wait  12.0 s  46.2 ms   45.0 ms  0.25  3.0 GiB",
    ]


def test_unknown_values_are_blank_and_unknown_columns_omitted():
    before = {"step": None, "step_ns": None, "run_step_ns": None, "loss": None, "resident_bytes": None}
    now = build_status_screen(status(replace(RANK, **before)))
    assert now.headline == "running: 1 rank"
    assert now.columns == ["rank", "state", "step", "phase", "for", "takes", "over run"]
    assert now.rows[0].cells == ["0", "running", "", "data wait", "12.0 s", "", ""]


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"state": RunState.KILLED, "phase_ns": None}, "Rank 1 was killed after step 1,204, in data wait."),
        (
            {"state": RunState.KILLED, "phase_ns": None, "hang": Hang(location="train.py(8): main")},
            "Rank 1 was killed after step 1,204, in data wait, where it hung: train.py(8): main.",
        ),
        (
            {"state": RunState.KILLED, "phase_ns": None, "hang": Hang(hangs=False)},
            "Rank 1 was killed after step 1,204, in data wait, which took long.",
        ),
        (
            {"state": RunState.KILLED, "step": None},
            "Rank 1 was killed before its first step was complete, in data wait.",
        ),
        ({"state": RunState.HUNG, "is_stopped": True}, "Rank 1 is suspended (SIGSTOP), in data wait for 12.0 s."),
        ({"state": RunState.HUNG, "hang": Hang()}, "Rank 1 hangs in data wait for 12.0 s."),
        (
            {"state": RunState.HUNG, "hang": Hang(location="train.py:8 in wait")},
            "Rank 1 hangs in data wait for 12.0 s: train.py:8 in wait.",
        ),
        (
            {"state": RunState.HUNG, "hang": Hang(holds_gil=True, location="train.py(9): hold")},
            "Rank 1 hangs in data wait for 12.0 s, waiting for the GIL: train.py(9): hold.",
        ),
        (
            {"hang": Hang(hangs=False, location="train.py(3): save")},
            "Rank 1 takes long in data wait, 12.0 s by now: train.py(3): save.",
        ),
        (
            {"state": RunState.UNRESPONSIVE, "quiet_ns": 184 * S},
            "Rank 1 on node-1 has had no heartbeat for 3 min 4 s, in data wait.",
        ),
        ({"behind": 1}, "Rank 1 is 1 step behind."),
        ({"behind": 12}, "Rank 1 is 12 steps behind."),
    ],
)
def test_each_anomaly_is_a_sentence(more, sentence):
    assert build_status_screen(status(replace(RANK, rank=1, **more), RANK)).sentences == [sentence]


def test_abnormal_ranks_of_many_have_rows_and_the_rest_is_summarized():
    abnormal = [replace(RANK, rank=rank, state=RunState.KILLED) for rank in (31, 500)]
    rest = [
        replace(RANK, rank=rank, phase=["forward", "backward"][rank % 2])
        for rank in range(1024)
        if rank not in (31, 500)
    ]
    now = build_status_screen(status(*abnormal, *rest, state=RunState.KILLED))
    assert now.headline.startswith("killed: 1,024 ranks, step 1,204")
    assert [row.cells[0] for row in now.rows] == ["31", "500"]
    assert now.rest == (
        "1,022 more ranks: 1,022 running; step 1,204, 46.2 ms/step (last 32 steps; 45.0 ms over the run); "
        "511 in forward, 511 in backward"
    )
    assert len(printed(now)) < 10


def test_if_all_of_many_ranks_are_abnormal_some_are_listed_with_their_number():
    now = build_status_screen(status(*(replace(RANK, rank=rank, state=RunState.UNRESPONSIVE) for rank in range(100))))
    assert len(now.rows) == MAX_ROWS
    assert now.rest.startswith(f"{100 - MAX_ROWS} more ranks: {100 - MAX_ROWS} unresponsive")
    assert len(now.sentences) == 4
    assert now.sentences[-1] == "And 97 more ranks like that."


def test_ranks_that_have_no_pulse_are_named():
    (sentence,) = build_status_screen(status(RANK, replace(RANK, rank=5), world_size=9)).sentences
    assert sentence == "There is no pulse of ranks 1-4, 6-8."
    (sentence,) = build_status_screen(status(RANK, world_size=2)).sentences
    assert sentence == "There is no pulse of rank 1."


def test_ranks_that_hang_alike_are_one_sentence():
    hang = {"state": RunState.HUNG, "phase": "backward", "hang": Hang(location="train.py(69): train")}
    ranks = [replace(RANK, rank=rank, phase_ns=(10 + rank) * S, **hang) for rank in (0, 1, 3)]
    stopped = replace(RANK, rank=2, state=RunState.HUNG, is_stopped=True)
    assert build_status_screen(status(stopped, *ranks)).sentences == [
        "Rank 2 is suspended (SIGSTOP), in data wait for 12.0 s.",
        "Ranks 0-1, 3 hang in backward for up to 13.0 s: train.py(69): train.",
    ]


def test_waits_between_ranks_are_a_sentence():
    waited = BlockedCollective("default_pg", 1204, "all_reduce", [0, 1, 2, 5], [3, 4])
    (sentence,) = build_status_screen(status(RANK, collectives=[waited])).sentences
    assert sentence == "In all_reduce, number 1,204 of group default_pg, ranks 0-2, 5 wait for ranks 3-4."


def test_some_of_many_waiting_groups_are_listed_and_the_others_counted():
    waited = [BlockedCollective(f"group {number}", 7, "all_reduce", [0], [1]) for number in range(9)]
    sentences = build_status_screen(status(RANK, collectives=waited)).sentences
    assert len(sentences) < 9
    assert sentences[-1] == f"And {10 - len(sentences)} more groups like that."


def test_ranks_of_several_hosts_show_their_host_in_printable_characters():
    hostile = replace(RANK, rank=1, host="no\x1b[2Jde\u202e" + "x" * 5000, state=RunState.UNRESPONSIVE)
    now = build_status_screen(status(hostile, RANK, notes=["Cannot read a\x1b[2J.pulse: gone."]))
    assert now.columns[-1] == "host"
    text = "\n".join(printed(now, 300))
    assert "\x1b[2J" not in text
    assert "\u202e" not in text
    assert len(text) < 3000


@pytest.mark.parametrize("width", [1, 10, 40, 79, 80, 81, 100, 300])
def test_a_narrow_terminal_has_fewer_columns_and_no_broken_lines(width):
    lines = printed(build_status_screen(status(RANK, replace(RANK, rank=1, host="node-2"))), width)
    if width >= 40:
        table = lines[[*map(bool, lines)].index(False) + 1 :]
        assert len(table) == 3, "a line for each rank, and one above them"
        assert table[0].startswith("rank state" if "rank state" in table[0] else "rank  state")


def test_a_later_attempt_and_apart_steps_are_in_the_headline():
    ranks = [RANK, replace(RANK, rank=1, step=1203)]
    now = build_status_screen(replace(status(*ranks), attempt=2))
    assert now.headline.startswith("running: attempt 2, 2 ranks, steps 1,203 to 1,204, ")
