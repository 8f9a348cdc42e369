"""The log of windows, read after its writer was killed at any moment."""

import pytest

from kinetoscope.spool.window_log import (
    EpochBegan,
    SavedWindows,
    WindowClosed,
    WindowLog,
    WindowOpened,
    WindowSaved,
    read_windows,
)


def opened(window):
    return WindowOpened(window, window - 1, 1000 * window, {"batch": window})


def closed(window):
    return WindowClosed(window, 1000 * window + 999, {"batch": window + 1})


def test_a_window_is_known_by_all_that_was_written_of_it(tmp_path):
    log = WindowLog(tmp_path)
    for event in (opened(1), closed(1), opened(2), WindowSaved(1)):
        log.append(event)
    (first, second), damages = read_windows(tmp_path)
    assert (first.cycle, first.began_ns, first.closed_ns, first.is_saved) == (0, 1000, 1999, True)
    assert (second.cycle, second.began_ns, second.closed_ns, second.is_saved) == (1, 2000, None, False)
    assert first.end_timestamp == second.timestamp == {"batch": 2}
    assert damages == []


def test_a_window_has_the_epochs_that_began_in_it(tmp_path):
    log = WindowLog(tmp_path)
    for event in (opened(1), EpochBegan(1, 1200, 3), EpochBegan(1, 1500, 4), closed(1)):
        log.append(event)
    (window,), damages = read_windows(tmp_path)
    assert window.epochs == [(1200, 3), (1500, 4)]
    assert damages == []


def test_a_moment_is_saved_if_its_window_is_or_it_was_before_all_that_are_known(tmp_path):
    log = WindowLog(tmp_path)
    for event in (opened(1), closed(1), opened(2), closed(2), WindowSaved(2), opened(3)):
        log.append(event)
    saved = SavedWindows(read_windows(tmp_path)[0])
    assert [saved.contains(begin_ns) for begin_ns in (999, 1000, 1999, 2000, 2999, 3000)] == [
        True, False, False, True, True, False,
    ]  # fmt: skip
    assert not SavedWindows([]).contains(5)


def test_a_folder_without_a_log_has_no_windows(tmp_path):
    assert read_windows(tmp_path) == ([], [])


def test_an_unfinished_line_is_skipped_and_later_lines_are_read(tmp_path):
    log = WindowLog(tmp_path)
    log.append(opened(1))
    with (tmp_path / "windows.jsonl").open("ab") as file:
        file.write(b'{"type":"cl')
    assert read_windows(tmp_path)[1] == []
    log.append(opened(2))
    windows, damages = read_windows(tmp_path)
    assert [window.number for window in windows] == [1, 2]
    assert len(damages) == 1
    assert "line 2" in damages[0]


def test_long_run_keeps_entries_of_unsaved_windows_and_its_log_stays_small(tmp_path):
    log = WindowLog(tmp_path)
    log.append(opened(1))
    for window in range(2, 20_000):
        for event in (opened(window), closed(window), WindowSaved(window)):
            log.append(event)
    log.append(opened(20_000))
    assert (tmp_path / "windows.jsonl").stat().st_size < 1 << 20
    windows, _ = read_windows(tmp_path)
    assert [window.number for window in windows if not window.is_saved] == [1, 20_000]
    assert windows[-2].number == 19_999


def test_data_refused_by_a_full_disk_is_written_with_the_next_event(tmp_path):
    log = WindowLog(tmp_path)
    log.append(WindowOpened(1, 0, 1000, {}))
    (tmp_path / "windows.jsonl").rename(tmp_path / "aside")
    (tmp_path / "windows.jsonl").mkdir()
    with pytest.raises(OSError):
        log.append(WindowClosed(1, 1900, {}))
    (tmp_path / "windows.jsonl").rmdir()
    (tmp_path / "windows.jsonl").write_bytes((tmp_path / "aside").read_bytes() + b'{"type":"clo')  # a torn line
    log.append(WindowOpened(2, 1, 2000, {}))
    windows, damages = read_windows(tmp_path)
    assert damages == []
    assert [(window.began_ns, window.closed_ns) for window in windows] == [(1000, 1900), (2000, None)]
