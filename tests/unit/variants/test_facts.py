"""Facts about a program, collected in its process."""

import json

import pytest

from support.fork_server import TORCH_COMPILE_MODULES, run_forked

pytest.importorskip("torch")

PROGRAM = """
import json, msgspec, torch
from kinetoscope.variants.facts import FactsWatch
watch = FactsWatch()
watch.install()
from torch.utils.data import DataLoader
loader = DataLoader([1.0, 2.0], 1)
for _ in range(2):
    list(loader)
model = torch.nn.Linear(2, 2)
optimizer = torch.optim.SGD(model.parameters(), 0.1, fused=True)
for _ in range(2):
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
model.zero_grad()
torch.distributions.Normal(0.0, 1.0)
torch.distributions.Normal(0.0, 1.0, validate_args=False)
torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=2)
print(msgspec.json.encode(watch.collect(num_local_ranks=1)).decode())
"""


def test_a_program_is_described_by_what_it_made_and_called():
    done = run_forked(TORCH_COMPILE_MODULES, PROGRAM)
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout.splitlines()[-1])
    (loader,) = facts["loaders"]
    assert (loader["num_workers"], loader["is_map_style"], loader["num_loops"]) == (0, True, 2)
    (optimizer,) = facts["optimizers"]
    assert (optimizer["name"], optimizer["num_parameters"], optimizer["fused"]) == ("SGD", 2, True)
    assert facts["num_kept_gradients"] == 2
    assert facts["num_distributions"] == 1
    assert facts["ddp"] == [{"bucket_cap_mb": 2.0, "gradient_as_bucket_view": False, "static_graph": False}]
