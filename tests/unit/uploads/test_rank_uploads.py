"""Uploading into a folder, by fsspec's ``file://``: what arrives, what stays, what is deleted, and the names."""

import fcntl
import hashlib
import os
from types import SimpleNamespace

import pytest

from kinetoscope import Timestamp
from kinetoscope.core.job.ranks import Ranks
from kinetoscope.core.paths.remote_url import mask_credentials
from kinetoscope.errors import FileNameError, SettingsError
from kinetoscope.uploads import queue_drain
from kinetoscope.uploads.queue_drain import drain_queue
from kinetoscope.uploads.rank_uploads import RankUploads, RemoteName
from kinetoscope.uploads.upload_queue import (
    add_upload,
    delete_when_uploaded,
    find_queue_folder,
    find_ranks_with_uploads,
    read_confirmed,
    read_queue,
)

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def run_folder(tmp_path):
    folder = tmp_path / "run"
    (folder / "traces").mkdir(parents=True)
    return folder


@pytest.fixture(autouse=True)
def quick_pauses(monkeypatch):
    monkeypatch.setattr(queue_drain, "MIN_RETRY_DELAY_S", 0.001)


def queue(run_folder, name, content, store, rank=0):
    file = run_folder / "traces" / name
    file.write_text(content)
    add_upload(run_folder, rank, file, f"file://{store}/{name}")
    return file


def upload(run_folder, rank=0, retry_for_s=0.01, **options):
    return drain_queue(run_folder, rank, retry_for_s=retry_for_s, **options)


def unreachable(tmp_path):
    """Return a store below a file: uploads fail until the file is removed."""
    (tmp_path / "not-a-folder").write_text("")
    return tmp_path / "not-a-folder" / "store"


def test_a_file_arrives_with_its_bytes_and_its_upload_is_confirmed(run_folder, tmp_path):
    queue(run_folder, "rank0.json", "trace", tmp_path / "store")
    assert not upload(run_folder).failed
    assert (tmp_path / "store" / "rank0.json").read_text() == "trace"
    assert read_queue(run_folder, 0) == []
    [confirmed] = read_confirmed(run_folder, 0)
    assert (confirmed.size_bytes, confirmed.md5) == (5, "04a75036e9d520bb983c5ed03b8d0182")


def test_a_file_that_the_store_refuses_stays_in_the_queue_and_arrives_the_next_time(run_folder, tmp_path):
    file = queue(run_folder, "rank0.json", "trace", unreachable(tmp_path))
    [(left, reason)] = upload(run_folder).failed
    assert (left.file, "not-a-folder" in reason) == (file, True)
    (tmp_path / "not-a-folder").unlink()
    assert len(upload(run_folder).confirmed) == 1
    assert (tmp_path / "not-a-folder" / "store" / "rank0.json").read_text() == "trace"


def test_one_file_that_fails_does_not_hold_up_the_others(run_folder, tmp_path):
    queue(run_folder, "bad.json", "1", unreachable(tmp_path))
    for number in range(3):
        queue(run_folder, f"good{number}.json", "2", tmp_path / "store")
    report = upload(run_folder)
    assert [len(report.confirmed), len(report.failed)] == [3, 1]


def test_expired_file_is_deleted_only_after_its_confirmed_upload(run_folder, tmp_path):
    file = queue(run_folder, "rank0.json", "trace", unreachable(tmp_path))
    delete_when_uploaded(run_folder, file)
    upload(run_folder)
    assert file.exists()
    (tmp_path / "not-a-folder").unlink()
    upload(run_folder)
    assert not file.exists()
    assert sorted(os.listdir(find_queue_folder(run_folder, 0))) == ["lock", "uploaded.jsonl"]


def test_expired_file_without_a_pending_upload_is_deleted_at_once(run_folder, tmp_path):
    uploaded = queue(run_folder, "rank0.json", "trace", tmp_path / "store")
    upload(run_folder)
    local = run_folder / "traces" / "rank1.json"
    local.write_text("trace")
    for file in (uploaded, local):
        delete_when_uploaded(run_folder, file)
        assert not file.exists()


def test_file_uploaded_again_is_queued_once_and_the_newest_content_arrives(run_folder, tmp_path):
    queue(run_folder, "merged.json", "old", tmp_path / "store")
    queue(run_folder, "merged.json", "new", tmp_path / "store")
    assert len(read_queue(run_folder, 0)) == 1
    upload(run_folder)
    assert (tmp_path / "store" / "merged.json").read_text() == "new"


def test_a_file_that_is_gone_is_reported(run_folder, tmp_path):
    queue(run_folder, "rank0.json", "trace", tmp_path / "store").unlink()
    [(_, reason)] = upload(run_folder, retry_for_s=10).failed
    assert reason.startswith("FileNotFoundError")


def test_files_that_were_left_aside_are_uploaded_only_when_asked_for(run_folder, tmp_path):
    file = run_folder / "traces" / "rank0.json"
    file.write_text("trace")
    add_upload(run_folder, 0, file, f"file://{tmp_path}/store/rank0.json", deferred=True)
    assert not upload(run_folder).confirmed
    assert len(upload(run_folder, deferred=True).confirmed) == 1


def test_an_entry_that_is_damaged_is_passed_over(run_folder, tmp_path):
    queue(run_folder, "rank0.json", "trace", tmp_path / "store")
    (find_queue_folder(run_folder, 0) / "00000000000000000001-1-1.json").write_text('{"path": "tra')
    assert len(upload(run_folder).confirmed) == 1


def test_a_queue_that_another_process_uploads_is_left_to_it(run_folder, tmp_path):
    queue(run_folder, "rank0.json", "trace", tmp_path / "store")
    with (find_queue_folder(run_folder, 0) / "lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        report = upload(run_folder)
    assert (report.is_busy, report.confirmed, len(read_queue(run_folder, 0))) == (True, [], 1)


def test_ranks_have_queues_of_their_own(run_folder, tmp_path):
    for rank in (0, 3):
        queue(run_folder, f"rank{rank}.json", "trace", tmp_path / "store", rank)
    assert find_ranks_with_uploads(run_folder) == [0, 3]
    upload(run_folder, rank=3)
    assert [len(read_queue(run_folder, rank)) for rank in (0, 3)] == [1, 0]


def test_an_upload_is_not_confirmed_if_the_store_holds_other_bytes(run_folder, tmp_path, monkeypatch):
    file = queue(run_folder, "rank0.json", "trace", "/store")
    [waiting] = read_queue(run_folder, 0)
    waiting.entry.write_bytes(waiting.entry.read_bytes().replace(b"file://", b"forgetful://"))

    class ForgetfulFileSystem(fsspec.get_filesystem_class("memory")):
        protocol = "forgetful"

        def put_file(self, lpath, rpath, **options):
            self.pipe_file(rpath, b"tr@ce")

    fsspec.register_implementation("forgetful", ForgetfulFileSystem, clobber=True)
    [(_, reason)] = upload(run_folder).failed
    assert "another checksum" in reason
    assert file.exists()


def test_files_share_a_connection_and_every_second_retry_reconnects(run_folder):
    connected, failures = [], {"1.json": 2}

    class CountedFileSystem(fsspec.spec.AbstractFileSystem):
        protocol = "counted"

        def __init__(self, **options):
            super().__init__(**options)
            connected.append(self)

        def put_file(self, lpath, rpath, **options):
            name = os.path.basename(rpath)
            if failures.get(name):
                failures[name] -= 1
                raise ConnectionError("reset")

        def info(self, path, **options):
            return {"size": 5, "ETag": hashlib.md5(b"trace").hexdigest()}

    fsspec.register_implementation("counted", CountedFileSystem, clobber=True)
    for number in range(3):
        file = run_folder / "traces" / f"{number}.json"
        file.write_text("trace")
        add_upload(run_folder, 0, file, f"counted://bucket/{number}.json")
    tries = [confirmed.num_tries for confirmed in upload(run_folder, retry_for_s=60).confirmed]
    assert (sorted(tries), len(connected)) == ([1, 1, 3], 2)


@pytest.mark.parametrize(
    "text",
    [
        "PUT https://me:hunter22@host/x failed",
        "https://host/x?X-Amz-Credential=AKIAEXAMPLEEXAMPLE/x&X-Amz-Signature=hunter22",
        "the key AKIAHUNTER22HUNTER22 is unknown",
        "Authorization: Bearer hunter22",
        "Could not sign with s3cr3t-hunter22",
    ],
)
def test_reasons_of_failures_have_no_credentials(text):
    cleaned = mask_credentials(text, {"AWS_SECRET_ACCESS_KEY": "s3cr3t-hunter22", "HOME": "host"})
    assert "hunter22" not in cleaned.lower()
    assert "***" in cleaned


class Shelf:
    """A store of another trainer, which copies files or refuses them."""

    def __init__(self, refuses=False):
        self.files, self._refuses = {}, refuses

    def put(self, file, remote_name):
        if self._refuses:
            raise RuntimeError("the shelf is full")
        self.files[remote_name] = file.read_bytes()


def test_files_without_a_url_go_to_another_trainers_store_before_deletion(run_folder):
    shelf = Shelf()
    uploads = RankUploads(run_folder, 0, None, shelf)
    file = run_folder / "traces" / "rank0.json"
    file.write_text("trace")
    uploads.put(file, "runs/rank0.json")
    uploads.delete_when_uploaded(file)
    uploads.finish(1.0)
    assert shelf.files == {"runs/rank0.json": b"trace"}
    assert not file.exists()


def test_files_that_another_trainers_store_refuses_stay_on_disk(run_folder, caplog):
    uploads = RankUploads(run_folder, 0, None, Shelf(refuses=True))
    file = run_folder / "traces" / "rank0.json"
    file.write_text("trace")
    uploads.put(file, "runs/rank0.json")
    uploads.delete_when_uploaded(file)
    assert file.exists()
    assert "the shelf is full" in caplog.text


def test_a_full_queue_leaves_files_aside_and_says_so(run_folder, tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("kinetoscope.uploads.rank_uploads.MAX_WAITING", 2)
    monkeypatch.setattr(RankUploads, "_start", lambda self: None)
    uploads = RankUploads(run_folder, 0, f"file://{tmp_path}/store", None)
    for number in range(4):
        file = run_folder / "traces" / f"{number}.json"
        file.write_text("trace")
        uploads.put(file, file.name)
    assert len(read_queue(run_folder, 0)) == 2
    assert len(read_queue(run_folder, 0, deferred=True)) == 4
    assert "2 files wait to be uploaded" in caplog.text
    upload(run_folder, deferred=True)
    assert len(list((tmp_path / "store").iterdir())) == 4


TRACE = "{run_name}/traces/ep{epoch}-ba{batch}-rank{rank}.json"


class NameShelf:
    """A store of another trainer, which keeps only the names of files."""

    def __init__(self):
        self.names = []

    def put(self, file, remote_name):
        self.names.append(remote_name)


@pytest.fixture
def shelf():
    return NameShelf()


def opened(name, shelf, tmp_path, *, ranks=None, restart=0, **settings):
    profiler = SimpleNamespace(ranks=ranks or Ranks(3, 1, 4, 2, 1), attempt=SimpleNamespace(restart=restart))
    name.open(profiler, "digits", RankUploads(tmp_path, 3, None, shelf), **settings)
    return name


def test_variables_are_filled_in_and_leading_slashes_stripped(shelf, tmp_path):
    opened(RemoteName("//" + TRACE, "remote_file_name"), shelf, tmp_path).put(
        tmp_path / "x", Timestamp(epoch=1, batch=7)
    )
    assert shelf.names == ["digits/traces/ep1-ba7-rank3.json"]


def test_none_as_destination_uploads_nothing(shelf, tmp_path):
    opened(RemoteName(None, "remote_file_name"), shelf, tmp_path).put(tmp_path / "x", Timestamp())
    assert shelf.names == []


def test_second_file_of_a_name_does_not_replace_the_first(shelf, tmp_path):
    name = opened(RemoteName("{rank}.json.gz", "remote_file_name"), shelf, tmp_path)
    for _ in range(2):
        name.put(tmp_path / "x", Timestamp())
    assert shelf.names == ["3.json.gz", "3.2.json.gz"]


def test_after_a_restart_uploaded_files_stay_in_the_store(shelf, tmp_path):
    opened(RemoteName(TRACE, "remote_file_name"), shelf, tmp_path, restart=2).put(tmp_path / "x", Timestamp())
    assert shelf.names == ["digits/traces/attempt2/ep0-ba0-rank3.json"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{run_name}/merged.json.gz", "digits/merged.node1.json.gz"),
        ("v1.2/merged.json", "v1.2/merged.node1.json"),
        ("{node_rank}/merged.json", "1/merged.json"),
    ],
)
def test_merged_traces_of_several_nodes_have_different_names(shelf, tmp_path, text, expected):
    name = RemoteName(text, "merged_trace_remote_file_name", has_timestamp=False)
    opened(name, shelf, tmp_path, shared=True)
    for _ in range(2):
        name.put_shared(tmp_path / "x")
    assert shelf.names == [expected, expected]


def test_gz_is_appended_once():
    for text in ("a.json", "a.json.gz"):
        name = RemoteName(text, "remote_file_name")
        name.add_suffix(".gz")
        assert name.text == "a.json.gz"


def test_a_name_that_two_ranks_would_share_is_refused(shelf, tmp_path):
    with pytest.raises(FileNameError, match="remote_file_name"):
        opened(RemoteName("traces/{batch}.json", "remote_file_name"), shelf, tmp_path)


def test_an_unknown_variable_and_a_url_with_a_password_are_refused_at_construction():
    with pytest.raises(FileNameError, match=r"\{bath\}"):
        RemoteName("{bath}.json", "remote_file_name")
    with pytest.raises(SettingsError, match="credentials"):
        RemoteName("s3://me:hunter22@bucket/{rank}.json", "remote_file_name")
