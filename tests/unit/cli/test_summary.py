"""`kinetoscope summary`: one screen about where the time of a run went."""

import json

import pytest

from kinetoscope.cli import main
from trainsim import Fault, Settings, simulate


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """Four ranks; rank 2 is late in every third step."""
    folder = tmp_path_factory.mktemp("traces")
    late = Fault(kind="late_host", ranks=(2,), cost_ns=3_000_000, every=3)
    simulate(Settings(num_ranks=4, num_steps=12, faults=(late,))).write(folder)
    return folder


def test_screen_starts_with_the_straggler_and_its_saving_per_step(traces, capsys):
    assert main(["summary", "--no-cache", str(traces)]) == 0
    screen = capsys.readouterr().out
    assert "4 ranks, 12 steps" in screen
    assert screen.index("1  Straggler: rank 2 delays every 3rd step") < screen.index("Step time by rank")
    assert "saving/step" in screen
    assert "Fix: " in screen
    assert "kinetoscope explain straggler" in screen
    assert "aten::mm" in screen


def test_details_add_the_evidence(traces, capsys):
    assert main(["summary", "--no-cache", "--details", str(traces)]) == 0
    screen = capsys.readouterr().out
    assert "Rank 2 delays every 3rd step: slow CPU code" in screen
    assert "estimated saving" in screen
    assert "Evidence: num late steps 4" in screen


def test_json_has_all_rows_of_the_ranks_that_were_asked_for(traces, capsys):
    assert main(["summary", "--no-cache", "--json", "--ranks", "0,2-3", str(traces)]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["schema"] == 2
    assert [row["rank"] for row in report["ranks"]] == [0, 2, 3]
    assert {row["rank"] for row in report["steps"]} == {0, 2, 3}


@pytest.mark.parametrize(
    ("has_device", "side", "rest"),
    [
        (True, "GPU", ["(outside of modules)", "(gradient accumulation)", "(optimizer)"]),
        (False, "CPU", ["(outside of modules)", "(optimizer)", "(gradient accumulation)"]),
    ],
)
def test_modules_are_sorted_by_the_time_of_what_limits_the_step(has_device, side, rest, tmp_path, capsys):
    simulate(Settings(seed=3, num_ranks=2, num_steps=6, has_modules=True, has_device=has_device)).write(tmp_path)
    assert main(["summary", "--no-cache", "--modules", "2", str(tmp_path)]) == 0
    screen = capsys.readouterr().out
    assert f"Modules, {side} ms/step, mean of 2 ranks" in screen
    assert "  ranks  " not in screen  # all have the same
    places = [screen.index(f"\n{name}") for name in ("Model", *rest)]
    assert places == sorted(places)


def test_ranks_that_cannot_be_read_are_an_error_that_says_how_to_write_them(traces, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["summary", "--ranks", "0-x", str(traces)])
    assert ended.value.code == 2
    assert "0,4-7" in capsys.readouterr().err


def test_a_trace_without_steps_or_operators_has_a_summary_too(tmp_path, capsys):
    trace = tmp_path / "one.json"
    trace.write_text(
        '{"traceEvents": [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2}]}', encoding="utf-8"
    )
    assert main(["summary", "--no-cache", str(trace)]) == 0
    assert "no step was recorded" in capsys.readouterr().out


def test_names_cannot_steer_the_terminal(tmp_path, capsys):
    trace = tmp_path / "one.json"
    name = "\\u001b[31m[bold]red[/bold]"
    event = f'{{"ph": "X", "cat": "cpu_op", "name": "{name}", "pid": 1, "tid": 1, "ts": 1, "dur": 2}}'
    trace.write_text(f'{{"traceEvents": [{event}]}}', encoding="utf-8")
    assert main(["summary", "--no-cache", str(trace)]) == 0
    screen = capsys.readouterr().out
    assert "\x1b" not in screen
    assert "\\x1b[31m[bold]red[/bold]" in screen
