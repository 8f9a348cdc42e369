"""Reading a spool folder whose process was killed at any moment."""

import os
import threading

import pytest

from kinetoscope.spool.chunk import SpoolFile, read_chunk, read_track
from kinetoscope.spool.contents import delete_child_records, delete_collected_files, read_spool_folder
from kinetoscope.spool.record import RECORD_BYTES, unpack_records

NUM = 200_000


@pytest.fixture
def recorder(tmp_path):
    from kinetoscope.recording.markers.native_recorder import NativeRecorder

    recorder = NativeRecorder()
    recorder.open_folder(str(tmp_path), 0, 256 << 20)
    recorder.open_window()
    recorder.action = 2
    yield recorder
    recorder.close_folder()


def record(recorder, num):
    from kinetoscope.recording.markers.native_recorder import NativeSpan

    counter = NativeSpan(recorder, recorder.names.intern("n"), 2)
    for value in range(num):
        counter.counter(value)


def values_in(folder):
    (process,) = read_spool_folder(folder).processes
    (track,) = process.tracks
    return [record.end for record in track.records()]


def test_records_are_read_in_order_from_the_spool_and_the_chunks(tmp_path, recorder):
    record(recorder, NUM)
    num_chunks = len(list(tmp_path.glob("*.chunk")))
    recorder.prepare()
    (spool,) = tmp_path.glob("*.spool")
    assert spool.stat().st_size < 16 * NUM
    assert len(list(tmp_path.glob("*.chunk"))) < num_chunks
    record(recorder, 10)
    assert values_in(tmp_path) == [*range(NUM), *range(10)]


@pytest.mark.parametrize("num_lost", [1, 1000])
def test_an_entry_of_the_spool_that_was_not_finished_is_still_in_its_chunk(tmp_path, recorder, num_lost):
    kept = tmp_path / "kept"
    kept.mkdir()
    record(recorder, NUM)
    for path in tmp_path.glob("*.chunk"):
        os.link(path, kept / path.name)
    recorder.prepare()
    for path in kept.iterdir():  # killed after the spool was written, before the chunks were deleted
        if not (tmp_path / path.name).exists():
            os.link(path, tmp_path / path.name)
    assert values_in(tmp_path) == list(range(NUM))
    (spool,) = tmp_path.glob("*.spool")
    os.truncate(spool, spool.stat().st_size - num_lost)
    assert values_in(tmp_path) == list(range(NUM))


def test_spooled_records_can_be_read_after_their_files_are_gone(tmp_path, recorder):
    record(recorder, NUM)
    recorder.prepare()
    taken = recorder.close_window()
    (thread,) = taken.threads()
    taken.release()
    recorder.close_folder()
    assert not list(tmp_path.iterdir())
    assert [record.end for part in thread.parts for record in unpack_records(part.read())] == list(range(NUM))


def test_a_spool_that_finds_no_space_leaves_the_records_in_their_chunks(tmp_path, recorder, caplog):
    (tmp_path / f"{os.getpid()}-1.spool").touch()
    for _ in range(2):
        record(recorder, NUM)
        recorder.prepare()
    assert values_in(tmp_path) == [*range(NUM), *range(NUM)]
    (warning,) = [record.getMessage() for record in caplog.records]
    assert "live_bytes_max" in warning
    (tmp_path / f"{os.getpid()}-1.spool").unlink()


def test_a_file_that_a_worker_is_just_making_is_not_deleted(tmp_path):
    pid = os.getpid()
    for name in (f"{pid}.names", f"{pid}-1.track", f"{pid}-2.chunk"):
        (tmp_path / name).touch()
    delete_collected_files(tmp_path, pid, read_to_ns=1 << 60)
    assert len(list(tmp_path.iterdir())) == 3


def test_in_a_folder_that_was_deleted_there_is_nothing_to_delete(tmp_path):
    """As with a process that drops the run: its end printed a traceback."""
    delete_child_records(tmp_path / "gone", closed_ns=0)


def test_full_read_chunks_of_a_live_worker_are_deleted_and_the_current_one_stays(tmp_path, recorder):
    record(recorder, NUM)
    num_chunks = len(list(tmp_path.glob("*.chunk")))
    assert num_chunks > 1
    delete_collected_files(tmp_path, os.getpid(), read_to_ns=1)
    assert len(list(tmp_path.glob("*.chunk"))) == num_chunks
    delete_collected_files(tmp_path, os.getpid(), read_to_ns=1 << 60)
    left = values_in(tmp_path)
    assert left == list(range(NUM - len(left), NUM))
    assert 0 < len(left) < NUM


def test_each_thread_has_its_own_records_and_the_span_that_it_has_open(tmp_path, recorder):
    from kinetoscope.recording.markers.native_recorder import NativeSpan

    may_end, has_recorded = threading.Event(), threading.Event()

    def work():
        with NativeSpan(recorder, recorder.names.intern("open"), 2):
            record(recorder, 3)
            has_recorded.set()
            may_end.wait(60)

    thread = threading.Thread(target=work, name="other")
    thread.start()
    assert has_recorded.wait(60)
    record(recorder, 2)
    (process,) = read_spool_folder(tmp_path).processes
    may_end.set()
    thread.join()
    own, other = sorted(process.tracks, key=lambda track: not track.is_main)
    assert (other.name, other.tid) == ("other", thread.native_id)
    assert [record.end for record in own.records()] == [0, 1]
    assert [record.end for record in other.records()] == [0, 1, 2]
    assert own.open_spans == []
    assert [process.names[span.name].name for span in other.open_spans] == ["open"]


def find_record(content, value):
    """Return the offset of a counter's record in a chunk file; the track mark comes before the first."""
    _, records = read_chunk(content)
    return content.index(records) + (value + 1) * RECORD_BYTES


@pytest.mark.parametrize(("num_lost_bytes", "num_left"), [(0, 20), (1, 19), (RECORD_BYTES, 19), (RECORD_BYTES + 1, 18)])
def test_a_chunk_that_ends_within_a_record_has_the_whole_ones_before(tmp_path, recorder, num_lost_bytes, num_left):
    record(recorder, 20)
    (chunk,) = tmp_path.glob("*.chunk")
    os.truncate(chunk, find_record(chunk.read_bytes(), 20) - num_lost_bytes)
    assert values_in(tmp_path) == list(range(num_left))


def test_damaged_records_are_left_out_and_their_number_is_reported(tmp_path, recorder):
    record(recorder, 20)
    (chunk,) = tmp_path.glob("*.chunk")
    with chunk.open("r+b") as file:
        for offset in [find_record(chunk.read_bytes(), value) for value in (3, 8)]:
            os.pwrite(file.fileno(), b"\xff" * 8, offset)  # a start before all time
    assert values_in(tmp_path) == [value for value in range(20) if value not in (3, 8)]
    (damage,) = read_spool_folder(tmp_path).damages
    assert damage.startswith("2 records of MainThread are left out: they are damaged")


def test_a_span_that_ends_while_the_folder_is_read_is_found_once(tmp_path, recorder):
    from kinetoscope.recording.markers.native_recorder import NativeSpan

    with NativeSpan(recorder, recorder.names.intern("open"), 2):
        ((track,),) = (process.tracks for process in read_spool_folder(tmp_path).processes)
        (still_open,) = track.open_spans
        (file,) = tmp_path.glob("*.track")
        read_before = file.read_bytes()[:-1]  # cut off within an empty slot
        assert read_track(read_before)[1] == track.open_spans
        NativeSpan(recorder, recorder.names.intern("n"), 2).counter(still_open.begin)  # the same bytes elsewhere
    file.write_bytes(read_before)
    ((track,),) = (process.tracks for process in read_spool_folder(tmp_path).processes)
    assert track.open_spans == []
    assert [record.begin for record in track.records()][1:] == [still_open.begin]


def test_a_spool_gets_any_number_of_chunks_at_once(tmp_path, recorder):
    record(recorder, 3)
    (*_, (chunk,)), *_ = recorder.take_at_close(False)
    spool = SpoolFile(tmp_path, 1)
    many = spool.add([chunk] * 600)
    assert {spooled.read() for spooled in (many[0], many[511], many[512], many[-1])} == {bytes(memoryview(chunk))}
    spool.delete()
