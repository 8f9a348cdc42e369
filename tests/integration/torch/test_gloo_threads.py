"""Headers of traces: the threads of each process group with gloo."""

import json

from support.fork_server import run_forked

TWO_GROUPS = """
import json, sys, time, torch, torch.distributed as distributed
from pathlib import Path
import kinetoscope.torch as ours
distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}/store", rank=0, world_size=1)
group = distributed.new_group([0])

def communicate():
    for _ in range(4):
        distributed.all_reduce(torch.ones(2))
        distributed.broadcast(torch.ones(2), 0, group=group)

def num_named():
    names = [path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm")]
    return names.count("pt_gloo_runloop")

while num_named() < 4:  # a new thread has no name until it runs
    time.sleep(0.01)
with ours.profile() as profiler:
    communicate()
profiler.export_chrome_trace(sys.argv[1] + "/trace.json")
distributed.destroy_process_group()
"""


def test_spans_of_gloo_are_on_the_threads_of_their_group(tmp_path):
    done = run_forked(("torch", "torch.profiler"), TWO_GROUPS, tmp_path)
    assert done.returncode == 0, done.stderr
    trace = json.loads((tmp_path / "trace.json").read_text())
    threads = {group["pg_name"]: group["threads"] for group in trace["distributedInfo"]["pg_config"]}
    assert len({thread for of_group in threads.values() for thread in of_group}) == 4
    for name, group in (("gloo:all_reduce", "0"), ("gloo:broadcast", "1")):
        used = {event["tid"] for event in trace["traceEvents"] if event.get("name") == name}
        assert used
        assert used <= set(threads[group])
