"""Lists of slow steps are read up to the first incomplete line, with any other files in their folder."""

import os

import msgspec

from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.formats.slow_steps import FOLDER, SlowStep, append_slow_step, read_slow_steps

ONE = SlowStep(
    start="20261126T111846-13889-e46c2f5d",
    restart=0,
    rank=0,
    step=150,
    epoch=1,
    begin_ns=1_795_691_926_892_713_172,
    duration_ns=46_000_000,
    usual_ns=3_000_000,
    phase=1,
    phase_ns=44_000_000,
    phase_usual_ns=1_000_000,
    line="müsli.py:4",
    num_samples=4,
    num_on_line=3,
    starved_ns=1_000_000,
    path="ba150-rank0.json",
)


def add(folder, **changes):
    slow = msgspec.structs.replace(ONE, **changes)
    RunFolder(folder).make_folder(FOLDER)
    append_slow_step(folder, slow)
    return slow


def test_written_values_are_read_again_per_rank(tmp_path):
    other = add(tmp_path, rank=1, line=None, starved_ns=None)
    one, earlier = add(tmp_path), add(tmp_path, step=70, begin_ns=ONE.begin_ns - 10**9)
    assert read_slow_steps(tmp_path) == [earlier, one, other]


def test_a_run_without_slow_steps_has_none(tmp_path):
    assert read_slow_steps(tmp_path) == []
    assert read_slow_steps(tmp_path / "missing") == []
    (tmp_path / FOLDER).write_text("no folder")
    assert read_slow_steps(tmp_path) == []


def test_damaged_lines_and_strange_files_are_left_out(tmp_path):
    one = add(tmp_path)
    with open(tmp_path / FOLDER / "rank0.jsonl", "ab") as stream:
        stream.write(b'{"start":"half of a li\n[[[\nnull\n\xff\xfe\n')
        stream.write(msgspec.json.encode(one).replace(b'"phase":1', b'"phase":99') + b"\n")
        stream.write(msgspec.json.encode(one).replace(b'"ba150-rank0.json"', b'"../../etc/passwd"') + b"\n")
        stream.write(b'{"torn":')
    (tmp_path / FOLDER / "rank1.jsonl").mkdir()
    (tmp_path / FOLDER / "rank2.jsonl.bak").write_bytes(msgspec.json.encode(one))
    os.symlink("/etc/passwd", tmp_path / FOLDER / "rank3.jsonl")
    later = add(tmp_path, step=300, begin_ns=ONE.begin_ns + 10**9)
    assert read_slow_steps(tmp_path) == [one, later]


def test_half_of_the_excess_as_run_queue_delay_is_machine_load():
    assert not ONE.is_machines
    assert msgspec.structs.replace(ONE, starved_ns=22_000_000).is_machines
    assert not msgspec.structs.replace(ONE, starved_ns=None).is_machines
