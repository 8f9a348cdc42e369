"""`kinetoscope whatif`: the time of a step before and after a change."""

import io
import json
import sys

import pytest

from kinetoscope.cli import main
from trainsim import Fault, Settings, simulate


@pytest.fixture(scope="module")
def run():
    """Two ranks with a slow loader; rank 1 is late in every second step."""
    late = Fault(kind="late_host", ranks=(1,), cost_ns=3_000_000, every=2)
    slow = Fault(kind="gc", cost_ns=2_000_000)
    return simulate(Settings(num_ranks=2, num_steps=10, faults=(late, slow)))


@pytest.fixture(scope="module")
def traces(run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("traces")
    run.write(folder)
    return str(folder)


def what_if(traces, capsys, *options):
    """Return the rows that the command prints as JSON."""
    assert main(["whatif", "--no-cache", "--json", *options, traces]) == 0
    return json.loads(capsys.readouterr().out)["what_ifs"]


def near(run, better):
    """Check a run's saving, within 2 % and a little of its step."""
    return pytest.approx(run.saving_ns_per_step(better), rel=0.02, abs=0.002 * run.time_ns / run.num_steps)


def test_table_has_each_cause_and_straggler_sorted_by_saving(traces, capsys):
    assert main(["whatif", "--no-cache", traces]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "as recorded" in lines[1]
    index = {line.split("  ")[0]: index for index, line in enumerate(lines)}
    assert 1 < index["rank 1 without straggler delay"] < index["free communication"]
    assert 1 < index["no GC pauses"] < index["free communication"]
    assert "do not add up" in lines[-1]


def test_an_operator_is_faster_with_its_kernels_and_all_inside_of_it(run, traces, capsys):
    (row,) = what_if(traces, capsys, "--faster", "aten::mm=2")
    assert row["saving_ns_per_step"] == near(run, run.with_faster("aten::mm", 2))
    assert row["step_after_ns"] == pytest.approx(row["step_ns"] - row["saving_ns_per_step"])


def test_a_kernel_is_faster_under_its_name(run, traces, capsys):
    kernel = "ampere_bf16_s16816gemm_bf16_128x64_ldg8_f2f_stages_32x6_tn"
    (row,) = what_if(traces, capsys, "--faster", f"{kernel}=4")
    assert row["saving_ns_per_step"] == near(run, run.with_faster(kernel, 4))


def test_several_changes_are_made_at_once(run, traces, capsys):
    (row,) = what_if(traces, capsys, "--without", "gc", "--without", "python")
    assert row["without"] == ["gc", "python"]
    assert row["saving_ns_per_step"] == near(run, run.with_ideal("gc", "python"))


def test_other_ranks_save_their_wait_for_a_straggler(traces, capsys):
    (row,) = what_if(traces, capsys, "--on-time", "1")
    assert row["saving_ns_per_step"] > 500_000


def test_an_unknown_name_is_an_error_that_says_which_come_near(traces, capsys):
    assert main(["whatif", "--no-cache", "--faster", "aten::adm=2", traces]) == 2
    assert "aten::addmm" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["aten::mm", "a" * 100_000])
def test_in_a_trace_of_steps_alone_every_name_is_unknown_and_a_long_one_is_cut(name, tmp_path, capsys):
    steps = [{"ph": "X", "name": f"ProfilerStep#{n}", "pid": 1, "tid": 1, "ts": 2 * n, "dur": 1} for n in range(3)]
    (tmp_path / "steps.json").write_text(json.dumps(steps))
    assert main(["whatif", "--no-cache", "--faster", f"{name}=2", str(tmp_path / "steps.json")]) == 2
    message = capsys.readouterr().err
    assert name[:20] in message
    assert len(message) < 1000


def test_an_unknown_rank_is_an_error_that_says_which_there_are(traces, capsys):
    assert main(["whatif", "--no-cache", "--on-time", "7", traces]) == 2
    assert "Recorded ranks: 0, 1." in capsys.readouterr().err


@pytest.mark.parametrize("text", ["aten::mm", "aten::mm=", "=2", "aten::mm=0", "aten::mm=nan", "aten::mm=inf"])
def test_a_factor_that_cannot_be_read_is_an_error_that_shows_how_to_write_it(text, traces, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["whatif", "--faster", text, traces])
    assert ended.value.code == 2
    assert "aten::mm=2" in capsys.readouterr().err


def test_savings_are_unknown_where_a_device_waits_for_nothing_that_the_traces_show(tmp_path, capsys):
    simulate(Settings(num_ranks=1, faults=(Fault(kind="idle_gaps", cost_ns=400_000),))).write(tmp_path)
    assert main(["whatif", "--no-cache", str(tmp_path)]) == 0
    assert "Unknown" in capsys.readouterr().out
    assert {row["saving_ns_per_step"] for row in what_if(str(tmp_path), capsys)} == {None}


def test_trace_without_steps_is_reported_as_such(tmp_path, capsys):
    trace = tmp_path / "one.json"
    event = '{"ph": "X", "cat": "cpu_op", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 2}'
    trace.write_text(f'{{"traceEvents": [{event}]}}', encoding="utf-8")
    assert main(["whatif", "--no-cache", str(trace)]) == 0
    assert "No steps recorded" in capsys.readouterr().out


def test_a_bar_shows_what_is_read_also_where_a_report_is_kept(run, tmp_path, monkeypatch, capsys):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    run.write(tmp_path)
    assert main(["summary", str(tmp_path)]) == 0
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    assert main(["whatif", str(tmp_path)]) == 0
    assert "reading" in sys.stderr.getvalue()


def test_several_ranks_are_on_time_together(tmp_path, capsys):
    late = tuple(Fault(kind="late_host", ranks=(rank,), cost_ns=3_000_000) for rank in (1, 2))
    run = simulate(Settings(num_ranks=4, faults=late))
    run.write(tmp_path)
    alone, both = (what_if(str(tmp_path), capsys, "--on-time", ranks)[0] for ranks in ("1", "1,2"))
    assert (alone["on_time"], both["on_time"]) == ([1], [1, 2])
    assert alone["saving_ns_per_step"] < 0.2 * both["saving_ns_per_step"]
    assert both["saving_ns_per_step"] == near(run, run.without(0, 1))


def test_all_ranks_on_time_is_an_error(traces, capsys):
    assert main(["whatif", "--no-cache", "--on-time", "0,1", traces]) == 2
    assert "all ranks are selected" in capsys.readouterr().err


@pytest.mark.parametrize("options", [["--no-cache"], []], ids=["read anew", "kept"])
def test_a_fix_saves_what_its_finding_says(options, tmp_path, capsys):
    faults = (Fault(kind="items", count=60), Fault(kind="small_kernels", count=300))
    late = Fault(kind="late_device", ranks=(1,), cost_ns=3_000_000)
    simulate(Settings(num_ranks=2, num_steps=6, faults=(*faults, late))).write(tmp_path)
    traces = str(tmp_path)
    assert main(["summary", "--json", *options, traces]) == 0
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert {"synchronisation", "small_kernels", "straggler"} <= {finding["kind"] for finding in findings}
    for number, finding in enumerate(findings, start=1):
        assert main(["whatif", "--json", "--fix", str(number), *options, traces]) == 0
        (row,) = json.loads(capsys.readouterr().out)["what_ifs"]
        assert row["fix"] == number
        assert round(row["saving_ns_per_step"]) == finding["saving_ns_per_step"]


def test_a_fix_is_called_by_its_title(traces, capsys):
    assert main(["whatif", "--no-cache", "--fix", "1", traces]) == 0
    assert "without finding 1: " in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize("number", ["0", "99"])
def test_a_fix_of_no_finding_is_an_error_that_says_which_there_are(number, traces, capsys):
    assert main(["whatif", "--no-cache", "--fix", number, traces]) == 2
    assert "the run has 1 finding." in capsys.readouterr().err


def test_fix_combined_with_another_change_is_an_error(traces, capsys):
    assert main(["whatif", "--no-cache", "--fix", "1", "--without", "gc", traces]) == 2
    assert "--fix cannot be combined with other changes" in capsys.readouterr().err
