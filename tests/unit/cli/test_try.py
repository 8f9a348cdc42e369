"""`kinetoscope try`: errors and questions before the first start."""

import io
import sys

import pytest

from kinetoscope.cli import main


@pytest.mark.parametrize("minutes", ["0", "-1", "10m", "1e9"])
def test_the_error_of_a_time_limit_names_minutes_and_their_range(minutes, capsys):
    with pytest.raises(SystemExit):
        main(["try", "--max-minutes", minutes, "--", "python", "train.py"])
    error = f"error: Argument --max-minutes: cannot read the minutes '{minutes}'."
    assert capsys.readouterr().err == f"{error} Write a number above 0, up to 10,000,000.\n"


class Terminal(io.StringIO):
    """Standard input of a user who types these lines."""

    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("fixes", "number"),
    [
        (["num_workers=0"], "10"),  # the first start, two rounds of three, and three for the results
        (["num_workers=0", "num_workers=2"], "13"),
        (["num_workers=0", "fused=True"], "13 to about 20"),  # with a pair: two more rounds of three, and one start
        (["num_workers"], "10 to about 31"),
        ([], "10 to about 44"),
    ],
)
def test_the_number_of_starts_is_that_of_the_possible_rows(fixes, number, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    options = [word for fix in fixes for word in ("--fix", fix)]
    assert main(["try", "--rounds", "2", *options, "--", "true"]) == 1
    printed = capsys.readouterr().err
    assert printed.startswith(f"The command will be started {number} times, more where its step time varies, ")
    assert printed.endswith("Nothing was started.\n")


SEVERAL = "This command has ranks on other machines, which `kinetoscope try` does not start."
STEP = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_STEP_TASKS_PER_NODE": "1(x2)", "SLURM_PROCID": "0", "SLURM_NODEID": "0"}


@pytest.mark.parametrize(
    ("command", "environment", "is_refused"),
    [
        ("python train.py", {"SLURM_NNODES": "2"}, False),  # a shell of salloc
        ("python train.py", {"SLURM_NNODES": "2", "SLURM_STEP_NUM_NODES": "1"}, False),  # below `srun -N1`
        ("python train.py", {"SLURM_NNODES": "2", "SLURM_STEP_NUM_NODES": "2"}, True),
        ("python train.py", STEP, True),
        ("python train.py", {"RANK": "0", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "2"}, True),
        ("python train.py", {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}, False),
        ("srun python train.py", {"SLURM_NNODES": "2"}, True),
        ("srun python train.py", {"SLURM_NNODES": "1"}, False),
        ("srun -n 1 -N1 python train.py", {"SLURM_NNODES": "2"}, False),
        ("env A=1 /usr/bin/srun --nodes=1 -n 2 python train.py", {"SLURM_NNODES": "2"}, False),
        ("srun --nodes 2 python train.py", {}, True),
        ("torchrun --nnodes=2 train.py", {}, True),
        ("torchrun --nnodes=1 train.py", {"SLURM_NNODES": "2"}, False),
    ],
)
def test_a_command_is_refused_for_its_own_nodes_and_not_for_those_of_the_allocation(
    command, environment, is_refused, capsys, monkeypatch, tmp_path
):
    for name in ("srun", "torchrun", "python"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    main(["try", "--fix", "fused", "--", *command.split()])
    assert capsys.readouterr().err.startswith(f"error: {SEVERAL}" if is_refused else "The command will be started ")


def list_variants(capsys, *fixes):
    """Return the rows that a dry run prints on a wide terminal, with single spaces, without the header."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("COLUMNS", "120")
        assert main(["try", "--dry-run", *(word for fix in fixes for word in ("--fix", fix)), "--", "python"]) == 0
    return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()[1:]]


def test_a_dry_run_lists_the_value_that_is_named(capsys):
    assert list_variants(capsys, "num_workers=4", "fused") == [
        "num_workers=4 DataLoader(..., num_workers=4) equal yes",
        "fused AdamW(..., fused=True) may differ if it applies",
    ]


def test_a_dry_run_marks_the_rows_beyond_the_maximum(capsys):
    lines = list_variants(capsys, *(f"num_workers={number}" for number in range(9)))
    assert [line.endswith("if fewer than 8 others are") for line in lines] == [False] * 8 + [True]


def test_a_dry_run_refuses_json(capsys):
    assert main(["try", "--dry-run", "--json", "--", "python"]) == 2
    assert capsys.readouterr().err == "error: --dry-run prints no JSON. Leave out --json.\n"
