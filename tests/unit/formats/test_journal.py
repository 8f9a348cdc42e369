"""formats/journal.py: entries, one a line, and what a killed process leaves of the last one."""

import msgspec
import pytest

from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.formats.journal import append_line, journal_of_rank, journals_of_ranks, read_journal


class Opened(msgspec.Struct, tag="opened"):
    number: int


class Closed(msgspec.Struct, tag="closed"):
    number: int
    path: str = ""


LINES = [
    b'{"type":"opened","number":1}',
    b'{"type":"closed","number":1,"path":"\\udc80"}',
    b'{"type":"opened","number":2}',
]
ENTRIES = [Opened(1), Closed(1, "\udc80"), Opened(2)]


@pytest.fixture
def folder(tmp_path):
    return RunFolder(tmp_path)


def read(folder):
    """Return the entries of the journal, and the numbers of its damaged lines."""
    damaged = []
    entries = list(read_journal(folder, "a.jsonl", Opened | Closed, lambda number, error: damaged.append(number)))
    return entries, damaged


def test_appended_lines_are_read(folder):
    for line in LINES:
        append_line(folder, "a.jsonl", line)
    assert read(folder) == (ENTRIES, [])


def test_all_complete_entries_survive_a_kill_at_any_point_and_more_can_be_appended(folder):
    whole = b"\n".join(LINES) + b"\n"
    ends = [len(LINES[0]), len(LINES[0]) + 1 + len(LINES[1]), len(whole) - 1]
    for size in range(len(whole) + 1):
        (folder.path / "a.jsonl").write_bytes(whole[:size])
        num_whole = sum(size >= end for end in ends)
        assert read(folder) == (ENTRIES[:num_whole], [])
        append_line(folder, "a.jsonl", LINES[0])
        entries, damaged = read(folder)
        assert entries == [*ENTRIES[:num_whole], ENTRIES[0]]
        is_torn = size not in (0, *ends, *(end + 1 for end in ends))
        assert damaged == [num_whole + 1] * is_torn


def test_other_damaged_lines_are_left_out_and_numbered(folder):
    damaged = [b"", b"no JSON", b'{"type":"opened","number":"x"}', b'{"type":"new"}', b"[" * 10_000, b"\xff"]
    (folder.path / "a.jsonl").write_bytes(b"\n".join([LINES[0], *damaged, LINES[2], b""]))
    assert read(folder) == ([Opened(1), Opened(2)], [2, 3, 4, 5, 6, 7])


def test_the_journals_of_ranks_are_found_by_their_names(folder):
    (folder.path / "list").mkdir()
    for name in ("rank0.jsonl", "rank12.jsonl", "rank01.jsonl", "rank-1.jsonl", "rank0.jsonl.partial", "other"):
        (folder.path / "list" / name).touch()
    assert journals_of_ranks(folder, "list") == {rank: journal_of_rank("list", rank) for rank in (0, 12)}
