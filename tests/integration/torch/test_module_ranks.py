"""Modules of several ranks: losses are the same to the last bit as without, and names those of the user's model."""

import os
from pathlib import Path

import pytest

import kinetoscope
from kinetoscope.cli import main
from support.fork_server import start_with_torch
from support.torch_versions import VERSION

pytest.importorskip("torch.distributed.pipelining")
PROGRAM = Path(__file__).parents[2] / "support" / "programs" / "module_ranks.py"
since_2_7 = pytest.mark.skipif(
    VERSION < (2, 7), reason="on the CPU, fully_shard of torch 2.6 fails and its pipeline stages hang, without us too"
)
LAYERS = [f"Model.layers.{number}" for number in range(4)]
INSIDE = ("", ".attn", ".mlp", ".mlp.0", ".mlp.1")


def table_of(kind, folder):
    """Return the table of modules of a run of two ranks, which compare their losses themselves."""
    arguments = (PROGRAM.read_text(), kind, folder / "run", folder / "meeting_place")
    quiet = {"OMP_NUM_THREADS": "1", "KINETO_LOG_LEVEL": "99", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"} for rank in range(2)]
    started = [start_with_torch(*arguments, environment=os.environ | quiet | rank) for rank in ranks]
    for done in [rank.wait(150) for rank in started]:
        assert done.returncode == 0, done.stderr
    return kinetoscope.load(folder / "run").modules


def names_of_rank(table, rank):
    names = table.filter((table["rank"] == rank) & table["depth"].is_not_null())["name"].to_list()
    assert len(names) == len(set(names))
    return set(names)


def inside(layers):
    return {f"{layer}{part}" for layer in layers for part in INSIDE}


@pytest.mark.parametrize("kind", ["ddp", pytest.param("fsdp", marks=since_2_7)])
def test_ranks_of_wrapped_models_have_the_modules_of_the_model(kind, tmp_path):
    table = table_of(kind, tmp_path)
    assert names_of_rank(table, 0) == names_of_rank(table, 1) == {"Model"} | inside(LAYERS)
    assert {"Model", "Block"} <= set(table["class_name"])


def test_a_compiled_data_parallel_model_is_one_module(tmp_path):
    table = table_of("compiled", tmp_path)
    assert names_of_rank(table, 0) == names_of_rank(table, 1) == {"Model"}


@since_2_7
def test_each_stage_of_a_pipeline_has_its_own_modules_with_a_call_per_microbatch(tmp_path, capsys):
    table = table_of("pipeline", tmp_path)
    assert names_of_rank(table, 0) == {"Model"} | inside(LAYERS[:2])
    assert names_of_rank(table, 1) == {"Model"} | inside(LAYERS[2:])
    calls = dict(table.filter(table["name"].is_in(LAYERS)).select("name", "num_calls").iter_rows())
    assert calls == dict.fromkeys(LAYERS, 2 * 4)
    assert main(["summary", "--no-cache", "--modules", "1", str(tmp_path / "run")]) == 0
    title, header, *rows = capsys.readouterr().out.partition("Modules, ")[2].splitlines()
    assert title == "CPU ms/step, mean of 2 ranks"
    end = header.index("ranks") + len("ranks")
    of_rank_1 = {label: row[:end].endswith("1") for row in rows if (label := row.split()[0]).startswith("layers.")}
    assert of_rank_1 == {label: label[len("layers.")] in "23" for label in of_rank_1}
    assert {*of_rank_1.values()} == {True, False}
