"""report/terminal: the screen of `kinetoscope summary`, at any width."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

import kinetoscope
from kinetoscope.analysis.findings.finding import Where, build_finding
from kinetoscope.core.text.wording import format_ms
from kinetoscope.report.descriptions import describe_fix
from kinetoscope.report.terminal.screen import print_trimmed
from kinetoscope.report.terminal.summary import render_summary
from trainsim import Fault, Settings, simulate, stories


def analyse(settings, folder):
    simulate(settings).write(folder)
    return kinetoscope.analyze(folder, cache=False)


def screen(report, width=100, *, with_details=False):
    """Return the lines that a terminal of this width shows."""
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False)
    print_trimmed(console, render_summary(report, width, with_details=with_details))
    return out.getvalue().splitlines()


def table(lines, title):
    """Return the rows below a title, as cells: of the header first."""
    rows = lines[lines.index(title) + 1 :]
    end = rows.index("") if "" in rows else len(rows)
    return [re.split(r"\s{2,}", row.strip()) for row in rows[:end]]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    settings = replace(stories.VALUES_AND_LATE_RANK, num_steps=9, has_memory=True)
    return analyse(settings, tmp_path_factory.mktemp("traces"))


STEPS, OPERATORS = "Step time by rank, ms/step", "Operators per step"
KERNELS, MEMORY = "Kernels and copies per step", "Memory"
NUM_ROWS = {STEPS: 4, OPERATORS: 8, KERNELS: 8, MEMORY: 4}


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_row_of_a_table_is_wrapped(report, width):
    lines = screen(report, width)
    assert max(map(len, lines)) <= width
    for title, num_rows in NUM_ROWS.items():
        header, *rows = table(lines, title)
        assert [len(row) for row in rows[:num_rows]] == [len(header)] * num_rows


@pytest.mark.parametrize("width", [30, 40, 60])
def test_a_narrow_screen_names_its_hidden_columns_and_truncates_no_number(report, width):
    wide, narrow = screen(report, 200), screen(report, width)
    assert max(map(len, narrow)) <= width
    for title, num_rows in NUM_ROWS.items():
        (whole, *whole_rows), (header, *rows) = (table(lines, title)[: 1 + num_rows] for lines in (wide, narrow))
        columns = [whole.index(name) for name in header]
        assert columns[0] == 0
        assert [row[1:] for row in rows] == [[row[column] for column in columns[1:]] for row in whole_rows]
        below = " ".join(narrow[narrow.index(title) + 2 + num_rows :][:8])
        num_hidden = len(whole) - len(header)
        noun = "column" if num_hidden == 1 else "columns"
        assert (f"{num_hidden} {noun} hidden at this width: " in below) == (num_hidden > 0), below


@pytest.mark.parametrize("width", [40, 80, 160])
@pytest.mark.parametrize("with_details", [False, True])
def test_no_line_ends_in_a_blank(report, width, with_details):
    assert [line for line in screen(report, width, with_details=with_details) if line != line.rstrip()] == []


@pytest.mark.parametrize("width", [40, 60])
def test_a_narrow_screen_lacks_columns_of_devices_too(tmp_path, width):
    for path in simulate(Settings(num_ranks=2, num_steps=4)).write(tmp_path):
        path.write_text(re.sub(r"ProfilerStep#|Optimizer\.step#|enumerate\(DataLoader\)#", "part ", path.read_text()))
    lines = screen(kinetoscope.analyze(tmp_path, cache=False), width)
    header, of_first, of_second, *_ = table(lines, next(line for line in lines if line.endswith("last, in ms")))
    assert header[:3] == ["rank", "device", "window"]
    assert len(of_first) == len(of_second) == len(header)
    assert not any("…" in cell for cell in (*header, *of_first, *of_second))


def test_a_wide_screen_shows_more_of_a_step(report):
    narrow, wide = (table(screen(report, width), STEPS)[0] for width in (60, 160))
    assert narrow[:2] == ["rank", "step"]
    assert set(narrow) < set(wide)


def test_a_finding_is_a_row_with_its_saving_confidence_and_fix(report):
    lines = screen(report, 200)
    first = report.findings[0]
    row = next(index for index, line in enumerate(lines) if line.startswith("1  "))
    assert row < lines.index(STEPS)
    saving = f"{format_ms(first.saving_ns_per_step)} ms"
    assert re.fullmatch(rf"1  {re.escape(first.title)} +{saving} +{100 * first.saving_share:.0f} % +high", lines[row])
    assert lines[row + 1].startswith("   Fix: ")
    assert first.link in " ".join(lines)
    assert "Savings are not additive." in lines


def test_details_add_evidence_location_and_the_whole_advice(report):
    first = report.findings[0]
    lines = screen(report, 200, with_details=True)
    row = next(index for index, line in enumerate(lines) if line.startswith("1  "))
    below = [line.strip() for line in lines[row + 1 : row + 8]]
    assert re.match(
        r"cost [\d.]+ ms/step \(\d+%\), estimated saving [\d.]+ ms/step \(\d+%\), confidence high$", below[0]
    )
    assert first.where.steps == (3, 6, 9)
    assert below[1].startswith("rank 2; steps 3, 6, 9; ")
    assert first.advice.replace("`", "")[:60] in below[2]
    assert any(line.startswith("Evidence: num late steps 3") for line in below)
    assert not any(line.strip().startswith("Evidence: num") for line in screen(report, 200))


def test_steps_that_follow_one_another_are_named_as_one_range(report):
    first = report.findings[0]
    where = replace(first.where, ranks=(0, 1, 2), steps=(*range(11, 26), 30), spans=(), lines=())
    lines = screen(replace(report, findings=[replace(first, where=where)]), 160, with_details=True)
    assert "   ranks 0-2; steps 11-25, 30" in lines


def test_a_long_title_continues_below_its_own_start_and_not_below_its_number(report):
    lines = screen(report, 40)
    start = next(number for number, line in enumerate(lines) if line.startswith("1. "))
    end = next(number for number, line in enumerate(lines) if line.endswith("confidence high"))
    assert end > start + 1
    assert " ".join(lines[start:end]).split() == f"1. {report.findings[0].title}".split()
    assert all(re.match(r" {3}\S", line) for line in lines[start + 1 : end])


def test_a_fix_is_the_code_that_its_advice_ends_with():
    found = build_finding(
        "small_kernels", "t", "Fuse them: `torch.compile(model)`, at `x`.", confidence="low", evidence={}
    )
    assert describe_fix(found) == "Fix: `torch.compile(model)`"
    prose = replace(found, advice="Remove `time.sleep()` from the loop. It waits.")
    assert describe_fix(prose) == "Fix: Remove `time.sleep()` from the loop."


def test_more_findings_than_five_are_counted_unless_details_are_wanted(report):
    six = [replace(report.findings[0], title=f"Title {number}") for number in range(6)]
    lines = screen(replace(report, findings=six), 120)
    assert "1 more finding: --details" in lines
    assert not any("Title 5" in line for line in lines)
    assert any("Title 5" in line for line in screen(replace(report, findings=six), 120, with_details=True))


def test_colours_are_for_terminals_that_want_them(report, monkeypatch):
    def colours(**settings):
        out = io.StringIO()
        print_trimmed(Console(file=out, width=100, highlight=False, **settings), render_summary(report, 100))
        return re.findall(r"\x1b\[[\d;]*m", out.getvalue())

    assert colours() == []
    assert any(re.search(r"38;|3\dm", code) for code in colours(force_terminal=True, color_system="truecolor"))
    monkeypatch.setenv("NO_COLOR", "1")
    assert not any(re.search(r"38;|;3\d", code) for code in colours(force_terminal=True))


def test_a_source_line_is_a_link_where_the_file_is_here(report, tmp_path, monkeypatch):
    (tmp_path / "train.py").touch()
    monkeypatch.chdir(tmp_path)
    found = replace(report.findings[0], title="Hot line: train.py:57 takes 38 % of the step, gone.py:3 nothing")
    out = io.StringIO()
    console = Console(file=out, width=120, highlight=False, force_terminal=True, color_system="truecolor")
    print_trimmed(console, render_summary(replace(report, findings=[found]), 120))
    assert f"{(tmp_path / 'train.py').as_uri()}" in out.getvalue()
    assert "gone.py" not in "".join(re.findall(r"\x1b\]8;[^\x1b]*", out.getvalue()))


def test_without_colours_adjacent_parts_of_a_bar_differ_by_their_glyphs(report):
    bar = next(line for line in screen(report, 80) if line.startswith("CPU  "))
    assert len(bar) == 80
    assert len(set(bar[5:])) > 1


def test_small_parts_of_a_step_are_one_entry_unless_details_are_wanted(report):
    step_ns = report.run["step_ns"]
    small = {"gc_ns": 0.001 * step_ns, "between_ns": 0.002 * step_ns}
    host = dict.fromkeys(report.run["parts"]["host"], 0.0) | {"forward_ns": 0.997 * step_ns} | small
    changed = replace(report, run=report.run | {"parts": {"host": host, "device": None}})
    few, all_parts = (" ".join(screen(changed, 200, with_details=details)) for details in (False, True))
    assert f"other {0.003 * step_ns / 1e6:.2f}"[:-1] in few
    assert "GC pauses" not in few
    assert "GC pauses" in all_parts
    assert not re.search("[█▓▒░] other ", all_parts)


def test_findings_without_a_line_are_named_with_the_option_that_records_it(tmp_path):
    faults = (Fault(kind="slow_python", cost_ns=9_000_000),)
    lines = screen(analyse(Settings(num_ranks=1, num_steps=9, has_device=False, faults=faults), tmp_path))
    option = "kinetoscope run --diagnose (diagnose=True in Python)"
    assert f"Line of code of finding 1: record with {option}." in lines


def test_a_run_without_a_fault_reports_no_finding(tmp_path):
    assert "No finding." in screen(analyse(stories.HEALTHY, tmp_path))


def test_operators_of_one_name_are_one_row_whatever_their_shapes(report):
    names = [row[0] for row in table(screen(report), OPERATORS)[1:]]
    assert len(names) == len(set(names))
    assert sum(row.name == "aten::mm" for row in report.operators) > 1


def test_names_of_traces_in_a_finding_are_plain_text(report):
    where = Where(spans=("\x1b[31m[bold]red[/bold]",), lines=("[link=file:///x]train.py:3",))
    bad = build_finding("synchronisation", "a\x07b", "", confidence="high", evidence={}, where=where, cost_ns=1)
    text = "\n".join(screen(replace(report, findings=[bad]), with_details=True))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\\x1b[31m[bold]red[/bold]" in text
    assert "[link=file:///x]train.py:3" in text


def test_some_of_many_ranks_are_shown_and_the_rest_counted(tmp_path):
    lines = screen(
        analyse(Settings(num_ranks=17, num_steps=2, num_warmup_steps=1, num_layers=1, has_device=False), tmp_path)
    )
    assert "1 more rank: --json has all, --ranks selects some" in lines
    assert any("active=10" in line for line in lines)


def test_some_of_many_devices_and_memory_kinds_are_shown_and_the_rest_counted(report):
    devices = [replace(report.ranks[0], rank=rank) for rank in range(18)]
    without_steps = replace(report, ranks=devices, steps=[], memory=[])
    assert "2 more devices: --json has all, --ranks selects some" in screen(without_steps)
    memory = [replace(report.memory[0], rank=rank) for rank in range(17)]
    assert "1 more row: --json has all, --ranks selects some" in screen(replace(report, memory=memory))


def test_flops_per_step_of_a_rank_are_one_line(tmp_path):
    report = analyse(Settings(num_layers=2, has_shapes=True), tmp_path)
    flops, rate, share = (report.run[name] for name in ("flops_per_step", "flops_per_s", "mfu"))
    line = next(line for line in screen(report, 160) if " per step per rank" in line)
    assert line.startswith(
        f"{flops / 1e6:.3g} MFLOP per step per rank: {rate / 1e9:.3g} GFLOP/s, "
        f"{100 * share:.1f} % of the GPU's peak (MFU)"
    )


def test_flop_rates_have_the_share_of_time_that_they_cover(report):
    known = {"flops_per_step": 2e9, "flops_per_s": 4e12, "mfu": 0.31, "mfu_coverage": 0.93}
    lines = screen(replace(report, run=report.run | known), 160)
    text = "2 GFLOP per step per rank: 4 TFLOP/s, 31.0 % of the GPU's peak (MFU)"
    assert f"{text}; known for 93 % of the time of matmuls" in lines
    few = known | {"flops_per_s": None, "mfu": None, "mfu_coverage": 0.4}
    lines = screen(replace(report, run=report.run | few), 160)
    text = "2 GFLOP per step per rank: FLOP/s unknown; known for 40 % of the time of matmuls"
    assert text in lines


def test_the_time_of_tensor_cores_is_a_lower_bound_where_names_are_unclear(report):
    def lines_on(share, coverage):
        run = report.run | {"tensor_core_share": share, "tensor_core_coverage": coverage}
        return [line for line in screen(replace(report, run=run), 160) if line.startswith("Tensor cores")]

    of = "of the time of kernels that compute"
    assert lines_on(0.61, 1.0) == [f"Tensor cores: kernels that use them take 61.0 % {of}"]
    assert lines_on(0.61, 0.88) == [
        f"Tensor cores: kernels that use them take at least 61.0 % {of}; for 12.0 % of it, names do not tell"
    ]
    assert lines_on(0.0, 1.0) == [f"Tensor cores: kernels that use them take 0.0 % {of}"]
    assert lines_on(0.0, 0.7) == [f"Tensor cores: no kernel is known to use them; for 30.0 % {of}, names do not tell"]
    assert lines_on(None, 0.0) == lines_on(None, None) == []


@pytest.mark.parametrize(
    ("state", "warning"), [("killed", "This run was killed"), ("recording", "This run has not ended")]
)
def test_a_run_that_did_not_finish_has_a_warning_at_its_head(report, state, warning):
    head = screen(replace(report, run=report.run | {"state": state}), 160)
    assert any(line.startswith(f"! {warning}") for line in head[: head.index("")])


def test_a_lead_that_the_host_lost_is_called_so_and_is_no_negative_lead(report):
    step_ns, host = report.run["step_ns"], dict.fromkeys(report.run["parts"]["host"], 0.0)
    parts = {"host": host | {"forward_ns": step_ns + 1_490_000.0, "ahead_ns": -1_490_000.0}, "device": None}
    ranks = [replace(row, parts=parts) for row in report.ranks]
    lines = screen(replace(report, run=report.run | {"parts": parts}, ranks=ranks), 160)
    assert "CPU fell behind -1.49 ms" in lines[2]
    header, *rows = table(lines, STEPS)
    assert [row[header.index("CPU fell behind")] for row in rows[: len(ranks)]] == ["-1.49"] * len(ranks)
    assert "ahead" not in "\n".join([*lines[:3], *header])


def test_a_trace_without_steps_has_the_times_of_its_devices_in_its_first_lines(report):
    run = report.run | {"num_steps": 0, "step_ns": None, "parts": None, "bound_by": "unknown"}
    two = screen(replace(report, run=run, steps=[]), 200)[1]
    one = screen(replace(report, run=run, steps=[], ranks=report.ranks[:1]), 200)[1]
    row = report.ranks[0]
    assert two.startswith(f"  Mean of {len(report.ranks)} GPUs, ms of the ")
    assert one.startswith(f"  GPU, ms of the {row.window_ns / 1e6:.1f} from its first event to its last: busy ")
    times = {
        "compute": row.compute_ns,
        "exposed communication": row.exposed_communication_ns,
        "exposed copy": row.exposed_copy_ns,
        "idle": row.idle_ns,
        "communication in total": row.communication_ns,
    }
    assert row.window_ns == sum(list(times.values())[:4])
    for word, time_ns in times.items():
        assert float(re.search(rf"{word} ([\d.]+)", one)[1]) == pytest.approx(time_ns / 1e6, rel=0.01)


def test_value_without_evidence_is_unknown_and_not_zero(report):
    parts = report.run["parts"]
    host = parts["host"] | {"backward_ns": None, "unknown_ns": 1_250_000.0}
    head = screen(replace(report, run=report.run | {"parts": {"host": host, "device": None}}), 200)
    assert "unknown 1.25 ms" in head[2]
    assert head[2].endswith("unknown: backward") or "backward" in head[2].split("unknown: ")[1]
    assert not any(line.startswith("GPU  ") for line in head)


def test_without_shapes_a_note_names_the_option_that_records_them(tmp_path):
    lines = screen(analyse(Settings(num_layers=2, has_shapes=False), tmp_path), 160)
    assert not any("A rank computes" in line for line in lines)
    assert any("record_shapes=True" in line for line in lines)


def test_a_trace_without_steps_has_a_table_of_its_devices(tmp_path):
    run = simulate(Settings(num_ranks=2, num_steps=4))
    for path in run.write(tmp_path):
        path.write_text(re.sub(r"ProfilerStep#|Optimizer\.step#|enumerate\(DataLoader\)#", "part ", path.read_text()))
    lines = screen(kinetoscope.analyze(tmp_path, cache=False))
    _, of_first, _ = table(lines, "Each GPU, from its first event to its last, in ms")
    truth = run.truth.ranks[0]
    names = ("window_ns", "busy_ns", "compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")
    times = [float(cell) for cell in of_first[2:]]
    assert times == [pytest.approx(truth[name] / 1e6, abs=0.06) for name in names]


def test_a_run_without_steps_and_without_a_device_has_no_table_of_devices(tmp_path):
    for path in simulate(Settings(num_ranks=1, num_steps=4, has_device=False)).write(tmp_path):
        path.write_text(re.sub(r"ProfilerStep#|Optimizer\.step#|enumerate\(DataLoader\)#", "part ", path.read_text()))
    assert not any("The device of each rank" in line for line in screen(kinetoscope.analyze(tmp_path, cache=False)))


def test_a_finding_that_is_worth_little_comes_last_and_without_its_fix(report):
    step_ns = report.run["step_ns"]
    little, more = (
        build_finding("garbage_collection", title, "Advice.", confidence="low", evidence={}, saving_ns=share * step_ns)
        for title, share in (("Little is lost", 0.029), ("More is lost", 0.031))
    )
    little, more = replace(little, saving_share=0.029), replace(more, saving_share=0.031)
    lines = screen(replace(report, findings=[more, little]), 120)
    first = next(index for index, line in enumerate(lines) if line.startswith("1  More is lost"))
    assert lines[first + 1].strip() == "Fix: Advice."
    assert re.match(r"2  Little is lost .* 3 % +low$", lines[first + 2])
    assert lines[first + 3].startswith("Savings are not additive")


@pytest.mark.parametrize("width", [80, 100, 160])
def test_kernels_with_one_different_template_argument_have_different_short_names(report, width):
    many = "vectorized_elementwise_kernel<4, at::native::FillFunctor<{}>, std::array<char*, 1ul> >(int, long, long)"
    longest = max(report.kernels, key=lambda row: row.total_ns)
    rows = [replace(longest, name=f"void at::native::{many.format(of)}") for of in ("float", "double")]
    first, second = (row[0] for row in table(screen(replace(report, kernels=rows), width), KERNELS)[1:3])
    assert first != second
    assert {"float" in first, "float" in second} == {True, False}
