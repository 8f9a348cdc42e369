"""A child process uses its parent's run file, in whatever state that is."""

import os

import pytest

LIMIT_BYTES = 1 << 20


@pytest.fixture
def parent(tmp_path):
    from kinetoscope.recording.markers.native_recorder import NativeRecorder

    folder = tmp_path / "live"
    folder.mkdir()
    recorder = NativeRecorder()
    recorder.open_folder(str(folder), 3, LIMIT_BYTES)
    yield recorder
    recorder.close_folder()


@pytest.fixture
def child():
    from kinetoscope.recording.markers.native_recorder import NativeRecorder

    return NativeRecorder()


def test_a_child_records_when_the_run_file_says_so(parent, child):
    child.follow_parent(os.path.dirname(parent.run_file), parent.run_file, LIMIT_BYTES)
    parent.open_window()
    parent.action = 2
    assert (child.window, child.action) == (1, 2)


@pytest.mark.parametrize("num_bytes", [0, 1, 31])
def test_a_run_file_that_was_cut_short_is_refused(tmp_path, parent, child, num_bytes):
    short = tmp_path / "short.run"
    with open(parent.run_file, "rb") as file:
        short.write_bytes(file.read()[:num_bytes])
    with pytest.raises(OSError, match=r"short\.run.*was cut short"):
        child.follow_parent(str(tmp_path), str(short), LIMIT_BYTES)
    assert (child.window, child.action) == (0, 0)


def test_a_run_file_of_another_version_is_refused(tmp_path, parent, child):
    other = tmp_path / "other.run"
    with open(parent.run_file, "rb") as file:
        content = bytearray(file.read())
    content[8] += 1
    other.write_bytes(content)
    with pytest.raises(OSError, match="this version"):
        child.follow_parent(str(tmp_path), str(other), LIMIT_BYTES)


def test_a_run_file_that_is_no_plain_file_is_refused_and_not_waited_for(tmp_path, child):
    os.mkfifo(tmp_path / "pipe.run")
    for path in (tmp_path, tmp_path / "pipe.run", "/dev/zero"):
        with pytest.raises(OSError):
            child.follow_parent(str(tmp_path), str(path), LIMIT_BYTES)


def test_a_run_file_that_is_gone_is_named_in_the_error(tmp_path, child):
    with pytest.raises(FileNotFoundError, match=r"gone\.run"):
        child.follow_parent(str(tmp_path), str(tmp_path / "gone.run"), LIMIT_BYTES)


def test_folder_with_an_undecodable_name_works_as_any_other(tmp_path, child):
    from kinetoscope.recording.markers.native_recorder import NativeRecorder, NativeSpan

    folder = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9")
    os.mkdir(folder)
    parent = NativeRecorder()
    parent.open_folder(folder, 0, LIMIT_BYTES)
    child.follow_parent(folder, parent.run_file, LIMIT_BYTES)
    parent.open_window()
    parent.action = 2
    num_files = len(os.listdir(folder))
    with NativeSpan(child, child.names.intern("m"), 2):
        pass
    assert len(os.listdir(folder)) == num_files + 2  # a track and a chunk
    parent.close_folder()
