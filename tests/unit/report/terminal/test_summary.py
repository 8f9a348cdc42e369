"""report/terminal.py: the screen of `kinetoscope summary`, at any width."""

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

import kinetoscope
from kinetoscope.analysis.findings.finding import Where, build_finding
from kinetoscope.report.terminal import render_report
from simulated_training import Settings, healthy_settings, planted_settings, simulate


def analyse(settings, folder):
    simulate(settings).write(folder)
    return kinetoscope.analyze(folder, cache=False)


def screen(report, width=100):
    """The lines that a terminal of this width shows."""
    out = io.StringIO()
    Console(file=out, width=width, highlight=False).print(render_report(report, width))
    return [line.rstrip() for line in out.getvalue().splitlines()]


def table(lines, title):
    """The rows below a title, as cells: of the header first."""
    rows = lines[lines.index(title) + 1 :]
    end = rows.index("") if "" in rows else len(rows)
    return [re.split(r"\s{2,}", row.strip()) for row in rows[:end]]


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    settings = replace(planted_settings(5, "items", "late_host"), num_steps=9, has_memory=True)
    return analyse(settings, tmp_path_factory.mktemp("traces"))


@pytest.mark.parametrize("width", [80, 100, 160])
def test_no_row_of_a_table_is_wrapped(report, width):
    lines = screen(report, width)
    assert max(map(len, lines)) <= width
    for title, num_rows in {"Step time by rank, in ms": 4, "Operators": 8, "Kernels and copies": 8}.items():
        header, *rows = table(lines, title)
        assert [len(row) for row in rows[:num_rows]] == [len(header)] * num_rows


@pytest.mark.parametrize("width", [30, 40, 60])
def test_a_narrow_screen_lacks_columns_and_cuts_no_number(report, width):
    wide = screen(report, 160)
    narrow = screen(report, width)
    assert max(map(len, narrow)) <= width
    titles = {"Step time by rank, in ms": 4, "Operators": 8, "Kernels and copies": 8, "Memory": 4}
    for title, num_rows in titles.items():
        (whole, *whole_rows), (header, *rows) = (table(lines, title)[: 1 + num_rows] for lines in (wide, narrow))
        columns = [whole.index(name) for name in header]
        assert columns[0] == 0
        assert [row[1:] for row in rows] == [[row[column] for column in columns[1:]] for row in whole_rows]


@pytest.mark.parametrize("width", [40, 60])
def test_a_narrow_screen_lacks_columns_of_devices_too(tmp_path, width):
    for path in simulate(Settings(num_ranks=2, num_steps=4)).write(tmp_path):
        path.write_text(re.sub(r"ProfilerStep#|Optimizer\.step#|enumerate\(DataLoader\)#", "part ", path.read_text()))
    lines = screen(kinetoscope.analyze(tmp_path, cache=False), width)
    header, of_first, of_second = table(lines, next(line for line in lines if line.endswith("last, in ms")))
    assert header[:3] == ["rank", "device", "window"]
    assert len(of_first) == len(of_second) == len(header)
    assert not any("…" in cell for cell in (*header, *of_first, *of_second))


def test_a_wide_screen_shows_more_of_a_step(report):
    narrow, wide = (table(screen(report, width), "Step time by rank, in ms")[0] for width in (60, 160))
    assert narrow[:2] == ["rank", "step"]
    assert set(narrow) < set(wide)


def test_findings_come_first_with_cost_saving_place_advice_and_link(report):
    lines = screen(report, 160)
    first = report.findings[0]
    below = lines[lines.index("") + 1 :]
    assert below[0] == f"1. {first.title}"
    cost = r"   cost [\d.]+ ms/step \(\d+%\), estimated saving [\d.]+ ms/step \(\d+%\), confidence high$"
    assert re.match(cost, below[1])
    assert first.where.steps == (3, 6, 9)
    assert below[2].startswith("   rank 2; steps 3, 6, 9; ")
    assert first.link in " ".join(lines)
    assert "Savings do not add up." in lines


def test_steps_that_follow_one_another_are_named_as_one_range(report):
    first = report.findings[0]
    where = replace(first.where, ranks=(0, 1, 2), steps=(*range(11, 26), 30), spans=(), lines=())
    lines = screen(replace(report, findings=[replace(first, where=where)]), 160)
    assert "   ranks 0-2; steps 11-25, 30" in lines


def test_a_long_title_goes_on_below_its_own_begin_and_not_below_its_number(report):
    lines = screen(report, 40)
    begin = next(number for number, line in enumerate(lines) if line.startswith("1. "))
    end = next(number for number, line in enumerate(lines) if line.startswith("   cost "))
    assert end > begin + 1
    assert " ".join(lines[begin:end]).split() == f"1. {report.findings[0].title}".split()
    assert all(re.match(r" {3}\S", line) for line in lines[begin + 1 : end])


def test_a_run_without_a_fault_says_so(tmp_path):
    assert "No finding." in screen(analyse(healthy_settings(4, 3_000_000), tmp_path))


def test_operators_of_one_name_are_one_row_whatever_their_shapes(report):
    names = [row[0] for row in table(screen(report), "Operators")[1:]]
    assert len(names) == len(set(names))
    assert sum(row.name == "aten::mm" for row in report.operators) > 1


def test_names_of_traces_in_a_finding_are_plain_text(report):
    where = Where(spans=("\x1b[31m[bold]red[/bold]",), lines=("[link=file:///x]train.py:3",))
    bad = build_finding("synchronisation", "a\x07b", "", confidence="high", evidence={}, where=where, cost_ns=1)
    text = "\n".join(screen(replace(report, findings=[bad])))
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "\\x1b[31m[bold]red[/bold]" in text
    assert "[link=file:///x]train.py:3" in text


def test_of_many_ranks_some_are_shown_and_the_rest_is_counted(tmp_path):
    lines = screen(
        analyse(Settings(num_ranks=17, num_steps=2, num_warmup_steps=1, num_layers=1, has_device=False), tmp_path)
    )
    assert "and 1 more rank; --json has all, --ranks chooses" in lines
    assert any("active=10" in line for line in lines)


def test_of_many_devices_and_memories_some_are_shown_and_the_rest_is_counted(report):
    devices = [replace(report.ranks[0], rank=rank) for rank in range(18)]
    without_steps = replace(report, ranks=devices, steps=[], memory=[])
    assert "and 2 more devices; --json has all, --ranks chooses" in screen(without_steps)
    memory = [replace(report.memory[0], rank=rank) for rank in range(17)]
    assert "and 1 more row; --json has all, --ranks chooses" in screen(replace(report, memory=memory))


def test_what_a_rank_computes_in_a_step_is_one_line(tmp_path):
    report = analyse(Settings(num_layers=2, has_shapes=True), tmp_path)
    flops, rate, share = (report.run[name] for name in ("flops_per_step", "flops_per_s", "mfu"))
    said = next(line for line in screen(report, 160) if " per step per rank" in line)
    assert said.startswith(
        f"{flops / 1e6:.3g} MFLOP per step per rank: {rate / 1e9:.3g} GFLOP/s, "
        f"{100 * share:.1f} % of the GPU's peak (MFU)"
    )


def test_flop_rates_are_told_with_the_share_that_they_cover_and_not_without_it(report):
    known = {"flops_per_step": 2e9, "flops_per_s": 4e12, "mfu": 0.31, "mfu_coverage": 0.93}
    lines = screen(replace(report, run=report.run | known), 160)
    said = "2 GFLOP per step per rank: 4 TFLOP/s, 31.0 % of the GPU's peak (MFU)"
    assert f"{said}; known for 93 % of the time of matmuls" in lines
    few = known | {"flops_per_s": None, "mfu": None, "mfu_coverage": 0.4}
    lines = screen(replace(report, run=report.run | few), 160)
    said = "2 GFLOP per step per rank: FLOP/s unknown; known for 40 % of the time of matmuls"
    assert said in lines


def test_how_much_of_the_kernels_time_is_that_of_tensor_cores_is_told_as_far_as_names_tell(report):
    def said(share, told):
        run = report.run | {"tensor_core_share": share, "tensor_core_coverage": told}
        return [line for line in screen(replace(report, run=run), 160) if line.startswith("Tensor cores")]

    of = "of the time of kernels that compute"
    assert said(0.61, 1.0) == [f"Tensor cores: kernels that use them take 61.0 % {of}"]
    assert said(0.61, 0.88) == [
        f"Tensor cores: kernels that use them take at least 61.0 % {of}; for 12.0 % of it, names do not tell"
    ]
    assert said(0.0, 1.0) == [f"Tensor cores: kernels that use them take 0.0 % {of}"]
    assert said(0.0, 0.7) == [f"Tensor cores: no kernel is known to use them; for 30.0 % {of}, names do not tell"]
    assert said(None, 0.0) == said(None, None) == []


@pytest.mark.parametrize(
    ("state", "said"), [("killed", "This run was killed"), ("recording", "This run has not ended")]
)
def test_a_run_that_did_not_finish_says_so_at_its_head(report, state, said):
    head = screen(replace(report, run=report.run | {"state": state}), 160)
    assert head[1].startswith(said)


def test_a_lead_that_the_host_lost_is_called_so_and_is_no_negative_lead(report):
    step_ns, host = report.run["step_ns"], dict.fromkeys(report.run["parts"]["host"], 0.0)
    parts = {"host": host | {"forward_ns": step_ns + 1_490_000.0, "ahead_ns": -1_490_000.0}, "device": None}
    ranks = [replace(row, parts=parts) for row in report.ranks]
    lines = screen(replace(report, run=report.run | {"parts": parts}, ranks=ranks), 160)
    assert lines[1].endswith(", CPU fell behind -1.49")
    header, *rows = table(lines, "Step time by rank, in ms")
    assert [row[header.index("CPU fell behind")] for row in rows[: len(ranks)]] == ["-1.49"] * len(ranks)
    assert "ahead" not in "\n".join([*lines[:2], *header])


def test_a_trace_without_steps_says_what_its_devices_did_in_its_first_lines(report):
    run = report.run | {"num_steps": 0, "step_ns": None, "parts": None, "bound_by": "unknown"}
    two = screen(replace(report, run=run, steps=[]), 200)[1]
    one = screen(replace(report, run=run, steps=[], ranks=report.ranks[:1]), 200)[1]
    row = report.ranks[0]
    assert two.startswith(f"  Mean of {len(report.ranks)} GPUs, ms of the ")
    assert one.startswith(f"  GPU, ms of the {row.window_ns / 1e6:.1f} from its first event to its last: busy ")
    told = {
        "compute": row.compute_ns,
        "exposed communication": row.exposed_communication_ns,
        "exposed copy": row.exposed_copy_ns,
        "idle": row.idle_ns,
        "communication in total": row.communication_ns,
    }
    assert row.window_ns == sum(list(told.values())[:4])
    for word, time_ns in told.items():
        assert float(re.search(rf"{word} ([\d.]+)", one)[1]) == pytest.approx(time_ns / 1e6, rel=0.01)


def test_what_no_evidence_covers_is_not_known_and_not_nothing(report):
    parts = report.run["parts"]
    host = parts["host"] | {"backward_ns": None, "unknown_ns": 1_250_000.0}
    head = screen(replace(report, run=report.run | {"parts": {"host": host, "device": None}}), 200)
    assert "unknown 1.25" in head[1]
    assert "backward" in head[1].split("; unknown: ")[1]
    assert not any(line.startswith("  GPU, ms/step") for line in head)


def test_without_shapes_a_note_says_what_records_them(tmp_path):
    lines = screen(analyse(Settings(num_layers=2, has_shapes=False), tmp_path), 160)
    assert not any("A rank computes" in line for line in lines)
    assert any("record_shapes=True" in line for line in lines)


def test_a_trace_without_steps_says_what_its_devices_did_all_the_same(tmp_path):
    run = simulate(Settings(num_ranks=2, num_steps=4))
    for path in run.write(tmp_path):
        path.write_text(re.sub(r"ProfilerStep#|Optimizer\.step#|enumerate\(DataLoader\)#", "part ", path.read_text()))
    lines = screen(kinetoscope.analyze(tmp_path, cache=False))
    _, of_first, _ = table(lines, "Each GPU, from its first event to its last, in ms")
    truth = run.truth.ranks[0]
    names = ("window_ns", "busy_ns", "compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")
    told = [float(cell) for cell in of_first[2:]]
    assert told == [pytest.approx(truth[name] / 1e6, abs=0.06) for name in names]


def test_a_run_without_steps_and_without_a_device_has_no_table_of_devices(tmp_path):
    for path in simulate(Settings(num_ranks=1, num_steps=4, has_device=False)).write(tmp_path):
        path.write_text(re.sub(r"ProfilerStep#|Optimizer\.step#|enumerate\(DataLoader\)#", "part ", path.read_text()))
    assert not any("The device of each rank" in line for line in screen(kinetoscope.analyze(tmp_path, cache=False)))


def test_a_finding_that_is_worth_little_comes_last_in_one_line(report):
    step_ns = report.run["step_ns"]
    little, more = (
        build_finding("garbage_collection", title, "Advice.", confidence="low", evidence={}, saving_ns=share * step_ns)
        for title, share in (("Little is lost", 0.029), ("More is lost", 0.031))
    )
    little, more = replace(little, saving_share=0.029), replace(more, saving_share=0.031)
    lines = screen(replace(report, findings=[more, little]), 120)
    place = lines.index("1. More is lost")
    assert "Advice." in [line.strip() for line in lines[place : place + 4]]
    (last,) = (line for line in lines if "Little is lost" in line)
    assert last.startswith("2. Little is lost: estimated saving ")
    assert last.endswith("(3%), confidence low")
    assert lines[lines.index(last) + 1].startswith("Savings do not add up")


@pytest.mark.parametrize("width", [80, 100, 160])
def test_kernels_that_differ_in_one_argument_of_a_template_are_told_apart(report, width):
    many = "vectorized_elementwise_kernel<4, at::native::FillFunctor<{}>, std::array<char*, 1ul> >(int, long, long)"
    longest = max(report.kernels, key=lambda row: row.total_ns)
    rows = [replace(longest, name=f"void at::native::{many.format(of)}") for of in ("float", "double")]
    first, second = (row[0] for row in table(screen(replace(report, kernels=rows), width), "Kernels and copies")[1:3])
    assert first != second
    assert {"float" in first, "float" in second} == {True, False}
