"""Which windows a killed process had not saved, if its writer thread was late with the log."""

from kinetoscope.handlers.recovered_cycles import find_unsaved_windows
from kinetoscope.spool.contents import SpooledPart, SpooledProcess, SpooledTrack
from kinetoscope.spool.record import Kind, Record, pack_records
from kinetoscope.spool.window_log import LoggedWindow

LAST_NS = 10_000


def recorded(begins):
    """Return a process that recorded in each of these windows, from its begin on."""
    parts = []
    for window, begin_ns in begins.items():
        packed = pack_records([Record(begin_ns, begin_ns + 5, 0, 0, 0, Kind.SPAN, 0)])
        parts.append(SpooledPart(window, 1, lambda packed=packed: packed))
    track = SpooledTrack(1, 7, 7, "MainThread", 0, True, 0, 0, parts=parts)
    return SpooledProcess(7, [], [track])


def logged(number, *, closed=True, saved=False):
    window = LoggedWindow(number, number - 1, 1000 * number, {"batch": number})
    if closed:
        window.closed_ns, window.end_timestamp = 1000 * number + 900, {"batch": number + 1}
    window.is_saved = saved
    return window


def spans_of_time(windows):
    return [(window.number, window.began_ns, window.closed_ns) for window in windows]


def test_a_saved_window_is_not_recovered_and_an_open_one_ends_at_the_last_known_time():
    windows = find_unsaved_windows([logged(1, saved=True), logged(2, closed=False)], None, LAST_NS)
    assert spans_of_time(windows) == [(2, 2000, LAST_NS)]
    assert windows[0].end is None
    assert windows[0].begin.batch == 2


def test_windows_that_are_not_in_the_log_yet_follow_the_last_one_in_it():
    (first, second, third) = find_unsaved_windows([logged(1)], recorded({1: 1100, 2: 2100, 3: 3100}), LAST_NS)
    assert spans_of_time([first, second, third]) == [(1, 1000, 1900), (2, 1901, 3099), (3, 3100, LAST_NS)]
    assert [window.cycle for window in (first, second, third)] == [0, 1, 2]
    assert second.begin.batch == 2  # the run's batch when the window before closed


def test_window_without_a_logged_close_ends_before_the_next_starts():
    windows = find_unsaved_windows([logged(1, closed=False)], recorded({1: 1100, 2: 2100}), LAST_NS)
    assert spans_of_time(windows) == [(1, 1000, 2099), (2, 2100, LAST_NS)]


def test_damaged_start_does_not_make_a_window_overlap_others():
    windows = find_unsaved_windows([logged(1, closed=False)], recorded({1: 1100, 2: 5}), LAST_NS)
    assert spans_of_time(windows) == [(1, 1000, 1105), (2, 1106, LAST_NS)]


def test_windows_start_with_their_first_records_without_a_log():
    windows = find_unsaved_windows([], recorded({4: 4100, 5: 5100}), LAST_NS)
    assert spans_of_time(windows) == [(4, 4100, 5099), (5, 5100, LAST_NS)]


def test_chunks_of_a_window_that_was_saved_long_ago_are_left_alone():
    windows = find_unsaved_windows([logged(8, saved=True), logged(9)], recorded({3: 3100, 9: 9100}), LAST_NS)
    assert [window.number for window in windows] == [9]


def test_without_any_window_there_is_nothing_to_recover():
    assert find_unsaved_windows([], None, 0) == []


def test_child_records_after_the_last_known_window_are_in_the_next():
    (window,) = find_unsaved_windows([logged(1, saved=True)], recorded({1: 1100}), 2500, 2400)
    assert spans_of_time([window]) == [(2, 1901, 2500)]
    assert window.begin.batch == 2


def test_child_records_between_two_windows_are_in_the_second():
    (first, second) = find_unsaved_windows([logged(1), logged(2)], recorded({1: 1100, 2: 2100}), LAST_NS, 1950)
    assert (first.closed_ns, second.after_ns, second.began_ns) == (1900, 1900, 2000)


def test_child_records_are_recovered_without_a_known_window():
    windows = find_unsaved_windows([], None, 2500, 2400)
    assert spans_of_time(windows) == [(1, 0, 2500)]
