"""Remote names: what a file is called in the store. The store is a shelf of the test's own."""

from types import SimpleNamespace

import pytest

from kinetoscope import Timestamp
from kinetoscope.errors import FileNameError, SettingsError
from kinetoscope.storage.remote_name import RemoteName
from kinetoscope.storage.uploads import Uploads
from kinetoscope.training.ranks import Ranks

TRACE = "{run_name}/traces/ep{epoch}-ba{batch}-rank{rank}.json"


class Shelf:
    def __init__(self):
        self.names = []

    def put(self, file, remote_name):
        self.names.append(remote_name)


@pytest.fixture
def shelf():
    return Shelf()


def opened(name, shelf, tmp_path, *, ranks=None, restart=0, **settings):
    profiler = SimpleNamespace(ranks=ranks or Ranks(3, 1, 4, 2, 1), attempt=SimpleNamespace(restart=restart))
    name.open(profiler, "digits", Uploads(tmp_path, 3, None, shelf), **settings)
    return name


def test_variables_are_filled_in_and_leading_slashes_stripped(shelf, tmp_path):
    opened(RemoteName("//" + TRACE, "remote_file_name"), shelf, tmp_path).put(
        tmp_path / "x", Timestamp(epoch=1, batch=7)
    )
    assert shelf.names == ["digits/traces/ep1-ba7-rank3.json"]


def test_none_uploads_nothing(shelf, tmp_path):
    opened(RemoteName(None, "remote_file_name"), shelf, tmp_path).put(tmp_path / "x", Timestamp())
    assert shelf.names == []


def test_a_second_file_of_a_name_does_not_take_the_place_of_the_first(shelf, tmp_path):
    name = opened(RemoteName("{rank}.json.gz", "remote_file_name"), shelf, tmp_path)
    for _ in range(2):
        name.put(tmp_path / "x", Timestamp())
    assert shelf.names == ["3.json.gz", "3.2.json.gz"]


def test_after_a_restart_what_was_uploaded_before_stays(shelf, tmp_path):
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
