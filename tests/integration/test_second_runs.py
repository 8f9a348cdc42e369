"""Four real ranks that train twice with the same command: the second run goes beside the first, on all ranks."""

import os

import pytest

from prepared_python import start_with_torch

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
        names = {path.name for path in (tmp_path / folder / "traces").glob("ep*.json")}
        assert {name[name.index("rank") :] for name in names} == {f"rank{rank}.json" for rank in range(4)}
    assert sorted(path.name for path in tmp_path.glob("mine*")) == ["mine", "mine-2"]
