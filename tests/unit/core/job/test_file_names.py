from datetime import timedelta

import pytest

from kinetoscope import Timestamp
from kinetoscope.core.job.file_names import FileNameFormat, UniqueNames
from kinetoscope.core.job.ranks import Ranks
from kinetoscope.errors import FileNameError

RANKS = Ranks(rank=5, local_rank=1, world_size=8, local_world_size=4, node_rank=1)


def test_every_variable_can_be_filled_in():
    timestamp = Timestamp(1, 20, 4, 160, 32, 999, 99, timedelta(seconds=9.5), timedelta(seconds=2), timedelta(0))
    text = (
        "{run_name} {rank} {local_rank} {world_size} {local_world_size} {node_rank} {epoch} {batch} {batch_in_epoch} "
        "{sample} {sample_in_epoch} {token} {token_in_epoch} {total_wct} {epoch_wct} {batch_wct}"
    )
    assert FileNameFormat(text).fill("run", RANKS, timestamp) == "run 5 1 8 4 1 1 20 4 160 32 999 99 9.5 2.0 0.0"


def test_format_specifications_work():
    assert FileNameFormat("{rank:03d}-{batch:06d}").fill("r", RANKS, Timestamp(batch=42)) == "005-000042"


@pytest.mark.parametrize("text", ["{rnak}.json", "{rank}-{step}", "{}", "{rank", "{0}"])
def test_an_unknown_variable_is_refused_at_construction_naming_it_and_the_known_ones(text):
    with pytest.raises(FileNameError) as caught:
        FileNameFormat(text, "filename")
    assert "filename" in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize(
    "text", ["{rank:999999999999}", "{rank:100}{rank}", "{epoch:.999d}", "{rank:{epoch}}", "{rank:{epoch:03d}d}"]
)
def test_a_name_longer_than_any_file_can_have_is_refused_before_it_is_made(text):
    with pytest.raises(FileNameError, match="100 characters"):
        FileNameFormat(text)


@pytest.mark.parametrize("text", ["{rank.real}", "{run_name.__class__}", "{run_name[0]}", "{rank:x-y}", "{run_name:d}"])
def test_a_name_that_could_not_be_filled_in_later_is_refused_at_once(text):
    with pytest.raises(FileNameError, match=r"unknown variable|is not a format"):
        FileNameFormat(text)


def test_the_refusal_lists_the_known_variables():
    with pytest.raises(FileNameError, match=r"\{rnak\}.*Known variables: \{run_name\}, \{rank\}"):
        FileNameFormat("{rnak}")


@pytest.mark.parametrize(
    ("text", "folder"),
    [
        ("s3://bucket/{run_name}/ep{epoch}-ba{batch}-rank{rank}.json", "s3://bucket/digits"),
        ("s3://bucket/{run_name}/{rank}/{epoch:03d}/{batch}.json", "s3://bucket/digits/5"),
        ("s3://bucket/{rank}.json", "s3://bucket"),
        ("{batch}.json", ""),
    ],
)
def test_all_files_of_a_name_are_in_one_folder(text, folder):
    assert FileNameFormat(text).fill_folder("digits", RANKS) == folder


def test_a_folder_cannot_depend_on_the_moment():
    with pytest.raises(FileNameError, match="batch"):
        FileNameFormat("{run_name}/{batch}", "folder", has_timestamp=False)


@pytest.mark.parametrize("text", ["trace.json", "{batch}.json", "{local_rank}.json", "{node_rank}.json"])
def test_a_name_that_two_ranks_would_share_is_refused(text):
    with pytest.raises(FileNameError, match=r"\{rank\}"):
        FileNameFormat(text).require_distinct_ranks(RANKS)


@pytest.mark.parametrize(
    ("text", "folder", "ranks"),
    [
        ("{rank}.json", "", RANKS),
        ("{node_rank}-{local_rank}.json", "", RANKS),
        ("{batch}.json", "traces/{rank}", RANKS),
        ("{local_rank}.json", "", Ranks(1, 1, 4, 4, 0)),
        ("{node_rank}.json", "", Ranks(1, 0, 4, 1, 1)),
        ("trace.json", "", Ranks()),
    ],
)
def test_a_name_that_differs_between_ranks_is_accepted(text, folder, ranks):
    FileNameFormat(text).require_distinct_ranks(ranks, folder)


def test_a_name_wanted_twice_gets_a_number_before_its_suffix():
    used = UniqueNames(["old.json"])
    wanted = ["a/rank0.json", "a/rank0.json", "a/rank0.json", "b.json.gz", "b.json.gz", "old.json"]
    assert [used.choose(name) for name in wanted] == [
        *("a/rank0.json", "a/rank0.2.json", "a/rank0.3.json"),
        *("b.json.gz", "b.2.json.gz", "old.2.json"),
    ]
