"""Four real ranks that train twice with the same command: the second run goes beside the first, on all ranks."""

import os

import pytest

from support.fork_server import start_with_torch

pytest.importorskip("torch")

TRAIN = """
import os, sys, torch, kinetoscope
from torch.distributed import barrier, destroy_process_group, init_process_group
rank = int(os.environ["RANK"])
torch.set_num_threads(1)
init_process_group("gloo", init_method="file://" + sys.argv[2], rank=rank, world_size=4)
schedule = kinetoscope.cyclic_schedule(warmup=0, active=3)
with kinetoscope.profile(sys.argv[1], schedule=schedule, torch=WITH_TORCH, system=False, quiet=True) as profiler:
    for _ in range(5):
        barrier()
        profiler.step()
print(profiler.state.run_name)
destroy_process_group()
"""


@pytest.mark.parametrize("with_torch", [False, True])
def test_all_ranks_of_a_second_run_choose_the_same_folder(tmp_path, with_torch):
    program = TRAIN.replace("WITH_TORCH", str(with_torch))
    environment = {"OMP_NUM_THREADS": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "WORLD_SIZE": "4"}
    for folder in ("mine", "mine-2"):
        ranks = [
            start_with_torch(
                program,
                tmp_path / "mine",
                tmp_path / f"meeting-{folder}",
                environment=os.environ | environment | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            )
            for rank in range(4)
        ]
        for done in [rank.wait(150) for rank in ranks]:
            assert (done.returncode, done.stdout) == (0, f"{folder}\n"), done.stderr
        names = {path.name for path in (tmp_path / folder / "traces").glob("ep*.json.gz")}
        assert {name[name.index("rank") :] for name in names} == {f"rank{rank}.json.gz" for rank in range(4)}
    assert sorted(path.name for path in tmp_path.glob("mine*")) == ["mine", "mine-2"]


FORK = """
import os, sys, torch, kinetoscope
torch.set_num_threads(1)
out, meeting = sys.argv[1:]

def record(barrier=lambda: None):
    schedule = kinetoscope.cyclic_schedule(warmup=0, active=3)
    with kinetoscope.profile(out, schedule=schedule, torch=False, system=False, quiet=True) as profiler:
        for step in range(5):
            if step == 2 and barrier.__name__ == "<lambda>":
                fork()
            barrier()
            profiler.step()
        return profiler.state.run_name

def fork():
    children = []
    for rank in range(2):
        if (child := os.fork()) == 0:
            from torch.distributed import barrier, init_process_group
            init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=2)
            print("child", record(barrier), flush=True)
            os._exit(0)
        children.append(child)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0

print("parent", record(), flush=True)
"""
LAUNCHERS = {
    "no launcher": {},
    "a port": {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"},
    "a launcher": {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "RANK": "0", "WORLD_SIZE": "1"},
}


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_forked_ranks_with_their_own_process_group_share_a_run_of_their_own(tmp_path, launcher):
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | LAUNCHERS[launcher]
    done = start_with_torch(FORK, tmp_path / "mine", tmp_path / "meeting", environment=environment).wait(150)
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["child mine-2", "child mine-2", "parent mine"]
    assert {path.name for path in (tmp_path / "mine" / "traces").glob("ep*.json.gz")} == {"ep0-ba3-rank0.json.gz"}
    ranks = {path.name.partition("-rank")[2] for path in (tmp_path / "mine-2" / "traces").glob("ep*.json.gz")}
    assert ranks == {"0.json.gz", "1.json.gz"}
