import os

import pytest

from kinetoscope.core.job.ranks import Ranks, derive_run_name, detect_attempt, detect_ranks, restart_count
from kinetoscope.errors import SettingsError

TORCHRUN = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "GROUP_RANK": "1"}


def test_without_a_launcher_there_is_a_world_of_one():
    assert detect_ranks({}) == Ranks(0, 0, 1, 1, 0)


def test_torchruns_environment_is_read():
    assert detect_ranks(TORCHRUN) == Ranks(rank=5, local_rank=1, world_size=8, local_world_size=4, node_rank=1)


def test_an_environment_variable_that_is_no_number_is_named():
    with pytest.raises(SettingsError, match=r"RANK.*'five'"):
        detect_ranks({"RANK": "five"})


def test_ranks_of_a_run_agree_on_a_name_without_communication():
    node = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    names = {derive_run_name(Ranks(rank, rank, 2, 2, 0), f"now-{rank}", node) for rank in (0, 1)}
    assert len(names) == 1


def test_a_local_rank_of_minus_1_is_none():
    assert detect_ranks({"LOCAL_RANK": "-1"}) == Ranks(0, 0, 1, 1, 0)


@pytest.mark.parametrize("number", ["-2", str(2**31)])
@pytest.mark.parametrize("variable", TORCHRUN)
def test_an_environment_variable_with_a_number_that_cannot_be_is_named(variable, number):
    with pytest.raises(SettingsError, match=f"{variable} should be a number from . on, but is '{number}'"):
        detect_ranks(TORCHRUN | {variable: number})


@pytest.mark.parametrize("variable", ["WORLD_SIZE", "LOCAL_WORLD_SIZE"])
def test_a_run_without_ranks_is_refused(variable):
    with pytest.raises(SettingsError, match=f"{variable} should be a number from 1 on, but is '0'"):
        detect_ranks(TORCHRUN | {variable: "0"})


def test_the_launchers_run_id_names_the_run():
    assert derive_run_name(Ranks(0, 0, 16, 8, 0), "now", {"TORCHELASTIC_RUN_ID": "job7"}) == "job7"


def test_ranks_of_several_nodes_with_nothing_shared_get_instructions():
    with pytest.raises(SettingsError, match="run_name"):
        derive_run_name(Ranks(0, 0, 16, 8, 0), "now", {"TORCHELASTIC_RUN_ID": "none"})


@pytest.mark.parametrize(
    "shared",
    [
        {"MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "29500"},
        {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"},
        {"PMIX_NAMESPACE": "mpirun-1"},
        {"TORCHELASTIC_RUN_ID": "job7"},
    ],
)
def test_ranks_below_wrappers_share_their_attempt_only_within_their_job(shared, monkeypatch):
    ranks = [Ranks(rank, rank, 2, 2, 0) for rank in (0, 1)]
    names, folders = set(), set()
    for rank, parent in zip(ranks, (100, 200), strict=True):
        monkeypatch.setattr(os, "getppid", lambda parent=parent: parent)
        names.add(detect_attempt(rank, shared).name)
        folders.add(derive_run_name(rank, "now", shared))
    assert (len(names), len(folders)) == (1, 1)
    for variable in shared:
        assert detect_attempt(ranks[0], shared | {variable: "8"}).name not in names


def test_no_two_starts_have_the_same_name():
    starts = {detect_attempt(Ranks(), {}).start for _ in range(100)}
    assert len(starts) == 100


def test_all_ranks_of_a_node_share_an_attempt_and_two_runs_do_not():
    ranks, environment = Ranks(0, 0, 2, 2, 0), {"TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": "29500"}
    again = Ranks(1, 1, 2, 2, 0)
    assert detect_attempt(ranks, environment).name == detect_attempt(again, environment).name
    other = {"TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": "29501"}
    assert detect_attempt(ranks, other).name != detect_attempt(ranks, environment).name


def test_a_restarted_attempt_keeps_its_traces_apart(tmp_path):
    environment = {"TORCHELASTIC_RESTART_COUNT": "2"}
    assert detect_attempt(Ranks(), environment).traces_folder(tmp_path) == tmp_path / "attempt2"
    assert detect_attempt(Ranks(), {}).traces_folder(tmp_path) == tmp_path


def numbers_of(*counts):
    names = "SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT"
    environments = [
        {name: value for name, value in zip(names, pair, strict=True) if value is not None} for pair in counts
    ]
    return [restart_count(environment) for environment in environments]


def test_attempts_are_numbered_by_the_one_count_that_the_launcher_gives():
    assert numbers_of((None, None), ("", ""), ("2", None), ("2", ""), (None, "3"), ("", "3")) == [0, 0, 2, 2, 3, 3]


def test_each_pair_of_restart_counts_has_its_own_ordered_number_per_launcher():
    pairs = [(str(requeue), str(restart)) for requeue in range(4) for restart in range(120)]
    numbers = numbers_of(*pairs)
    assert numbers == sorted(set(numbers))
    assert numbers[:3] == [0, 1, 2]
    assert numbers_of((None, "0"), (None, "7")) == numbers_of(("0", "0"), ("0", "7"))


def test_a_count_that_is_no_number_is_refused_by_name():
    with pytest.raises(SettingsError, match="SLURM_RESTART_COUNT should be a number, but is 'once'"):
        restart_count({"SLURM_RESTART_COUNT": "once", "TORCHELASTIC_RESTART_COUNT": "0"})


STEP = {"SLURM_JOB_ID": "17", "SLURM_STEP_NUM_TASKS": "7", "SLURM_STEP_TASKS_PER_NODE": "2(x2),3"}


@pytest.mark.parametrize(
    ("task", "ranks"),
    [
        ({"SLURM_PROCID": "3", "SLURM_LOCALID": "1", "SLURM_NODEID": "1"}, Ranks(3, 1, 7, 2, 1)),
        ({"SLURM_PROCID": "6", "SLURM_LOCALID": "2", "SLURM_NODEID": "2"}, Ranks(6, 2, 7, 3, 2)),
    ],
)
def test_the_tasks_that_srun_starts_are_ranks(task, ranks):
    assert detect_ranks(STEP | task) == ranks


def test_torchruns_ranks_count_under_slurm_too():
    assert detect_ranks(TORCHRUN | STEP | {"SLURM_PROCID": "0"}) == detect_ranks(TORCHRUN)


@pytest.mark.parametrize("tasks", ["", "x", "2(x", "9" * 50, "2(x2)"])
def test_without_the_tasks_of_each_node_slurms_ranks_are_those_of_one_node(tasks):
    task = {"SLURM_PROCID": "3", "SLURM_NODEID": "9", "SLURM_STEP_TASKS_PER_NODE": tasks}
    ranks = detect_ranks(STEP | task)
    assert (ranks.rank, ranks.world_size, ranks.local_world_size) == (3, 7, 7)


def test_in_a_script_of_sbatch_a_process_is_a_world_of_one():
    assert detect_ranks({"SLURM_JOB_ID": "17", "SLURM_NTASKS": "8", "SLURM_PROCID": "0"}) == Ranks()
