"""Traces read by the workers of a real Dask cluster: what is found is the same, and little is sent."""

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

import kinetoscope
from kinetoscope.analysis import rank_sample
from kinetoscope.cli import dask_cluster, main
from kinetoscope.errors import ClusterError, TraceFileError, UnsafePathError
from kinetoscope.frames.executors import map_function
from kinetoscope.frames.load import list_traces, load_one
from support.fork_server import run_program
from support.free_ports import free_port
from support.polling import wait_for
from trainsim import Fault, Settings, simulate

MAX_WAIT_S = 100
QUIET = {
    "distributed.worker.multiprocessing-method": "forkserver",
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.monitor-interval": "1s",
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "1s",
}
"""Workers are forked, and do little as long as they have no work: by default each uses a twentieth of a processor."""
KILLED = """
import os, sys
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
with Profiler(lambda state: ProfilerAction.ACTIVE, JSONTraceHandler(sys.argv[1] + "/traces")) as profiler:
    for batch in profiler.batches(range(5)):
        with profiler.marker("work"):
            pass
        if batch == 3:
            os.kill(os.getpid(), 9)
"""


@pytest.fixture(scope="module")
def distributed():
    """Dask's library, which no other test needs. Its workers are forked from a process that has imported it and us,
    also those that take the place of killed ones."""
    distributed = pytest.importorskip("distributed")
    with pytest.importorskip("dask").config.set(QUIET):
        distributed.utils.get_mp_context().set_forkserver_preload(["distributed", "kinetoscope.analysis.analyze"])
        yield distributed


@pytest.fixture(scope="module")
def cluster(distributed):
    """Two worker processes."""
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def connected(distributed, cluster):
    with distributed.Client(cluster, set_as_default=False) as client:
        yield client


@pytest.fixture
def client(connected):
    """A client of the cluster. Two workers run: one that was killed is started again, in the folder of this process at
    that moment, which the next test may change."""
    wait_for(lambda: len(connected.scheduler_info()["workers"]) == 2)
    return connected


@pytest.fixture
def watched(distributed, client):
    """An executor of the cluster, and the futures of its tasks."""

    class Watched(distributed.cfexecutor.ClientExecutor):
        def submit(self, *args, **kwargs):
            future = super().submit(*args, **kwargs)
            asked.append(future)
            return future

    asked = []
    return Watched(client), asked


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three ranks of ten steps, and the same with a slower one."""
    folder = tmp_path_factory.mktemp("runs")
    late = (Fault(kind="late_host", ranks=(1,), cost_ns=5_000_000),)
    simulate(Settings(num_ranks=3, num_steps=10)).write(folder / "before")
    simulate(Settings(num_ranks=3, num_steps=10, faults=late)).write(folder / "after")
    return folder


@pytest.fixture(scope="module")
def report(runs):
    return kinetoscope.analyze(runs / "after")


def busy_workers(client):
    """Return the workers that have work."""
    return [worker for worker, keys in client.processing().items() if keys]


@contextmanager
def full_hands(client):
    """Both workers have something to do until the end of the block; what they get meanwhile waits behind it."""
    from distributed import Event

    wait_for(lambda: not busy_workers(client))  # with what is left of the test before
    name = f"end of {time.monotonic_ns()}"
    waiting = [
        client.submit(lambda: Event(name).wait(), workers=worker, pure=False)
        for worker in client.scheduler_info()["workers"]
    ]
    wait_for(lambda: len(busy_workers(client)) == len(waiting))
    yield
    Event(name, client=client).set()


def worker_given_work(client):
    """The address and the process of a worker, once each has a task in addition to those that occupy its threads."""
    wait_for(lambda: all(len(keys) > 1 for keys in client.processing().values()))
    return client.run(os.getpid).popitem()


def test_workers_of_a_dask_cluster_find_the_same_as_this_process(client, runs, report, monkeypatch):
    monkeypatch.chdir(runs)  # the workers are in another folder
    executor = client.get_executor()
    assert kinetoscope.analyze("after", cache=False, executor=executor).to_dict() == report.to_dict()
    comparison = kinetoscope.compare("before", report, cache=False, executor=executor)
    assert comparison.to_dict() == kinetoscope.compare("before", report).to_dict()


def test_a_summary_of_about_14_kb_comes_back_of_each_rank(watched, runs, monkeypatch):
    executor, asked = watched
    monkeypatch.setattr(rank_sample, "MAX_REPLAYED", 2)  # as of a run of more than 128 ranks
    report = kinetoscope.analyze(runs / "after", cache=False, executor=executor)
    summaries, replayed = [len(future.result()) for future in asked[:3]], asked[3:]
    assert max(summaries) < 15_000
    assert len(replayed) == 2
    assert report.to_dict() == kinetoscope.analyze(runs / "after", cache=False).to_dict()


def test_loading_on_a_cluster_fills_the_cache_and_sends_no_columns(watched, runs, tmp_path):
    executor, asked = watched
    (tmp_path / ".manifest").mkdir()  # as in a run's folder, so the cache is beside the files
    for rank in range(3):
        shutil.copy(runs / "after" / f"rank{rank}.json", tmp_path)
    traces = kinetoscope.load(tmp_path, executor=executor)
    assert [future.result() for future in asked] == [None] * 3
    assert traces.spans.collect().equals(kinetoscope.load(tmp_path, cache=False).spans.collect())
    uncached = kinetoscope.load(tmp_path, cache=False, executor=executor)
    assert uncached.spans.collect().equals(traces.spans.collect())


def test_when_a_worker_is_killed_in_the_middle_another_one_does_its_work(client, runs, report):
    with ThreadPoolExecutor(1) as pool:
        with full_hands(client):
            found = pool.submit(kinetoscope.analyze, runs / "after", cache=False, executor=client.get_executor())
            dying, pid = worker_given_work(client)
            os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: busy_workers(client) == [dying])  # the other one has done its part
        os.kill(pid, signal.SIGKILL)
        assert found.result(MAX_WAIT_S).to_dict() == report.to_dict()


def test_a_file_at_which_one_worker_after_another_ends_is_named(cluster, client, runs, monkeypatch):
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 0)  # after four workers, usually
    with ThreadPoolExecutor(1) as pool, full_hands(client):
        found = pool.submit(kinetoscope.analyze, runs / "after", cache=False, executor=client.get_executor())
        dying, pid = worker_given_work(client)
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(ClusterError, match=rf"Cannot read /.*/rank.\.json on .* at {dying}\. .*memory"):
            found.result(MAX_WAIT_S)


def test_a_worker_that_does_not_see_a_file_is_named(client, runs, monkeypatch):
    monkeypatch.chdir(runs / "after")
    path = "/proc/self/cwd/rank0.json"  # each process sees another file
    with pytest.raises(TraceFileError, match=rf"trace {path}: No such file .*Dask worker tcp://.*the same path"):
        kinetoscope.analyze(path, cache=False, executor=client.get_executor())


def test_unreadable_file_is_read_again_next_time(client, runs, tmp_path):
    path = tmp_path / "rank0.json"
    path.write_text("no trace")
    with pytest.raises(TraceFileError, match=r"rank0\.json"):
        kinetoscope.analyze(path, executor=client.get_executor())
    shutil.copy(runs / "after" / "rank0.json", path)
    assert kinetoscope.analyze(path, executor=client.get_executor()).run["ranks"] == [0]


def test_a_cluster_without_workers_is_an_error(distributed, runs):
    settings = {"n_workers": 0, "processes": False, "protocol": "tcp", "dashboard_address": "127.0.0.1:0"}
    with distributed.LocalCluster(**settings) as cluster, distributed.Client(cluster, set_as_default=False) as client:
        with pytest.raises(ClusterError, match=r"at tcp://.* has no workers\. Start some"):
            kinetoscope.analyze(runs / "after", cache=False, executor=client.get_executor())


@pytest.mark.parametrize("words", [["summary", "after"], ["whatif", "after"], ["diff", "before", "after"]])
def test_commands_print_the_same_with_a_cluster(words, client, runs, monkeypatch, capsys):
    monkeypatch.chdir(runs)
    words = [*words, "--json"]
    codes = [main(words), main([*words, "--no-cache", "--dask", client.scheduler.address])]
    without, with_dask = capsys.readouterr().out.splitlines()
    assert (codes[0], without) == (codes[1], with_dask)


def test_a_report_is_written_with_a_cluster(client, runs, tmp_path, capsys):
    output = tmp_path / "report.html"
    words = ["--dask", client.scheduler.address, "--no-cache", "--no-timeline", "-o", str(output)]
    assert main(["report", str(runs / "after"), *words]) == 0
    assert capsys.readouterr().out.startswith(f"Written: {output}")


def test_a_bar_shows_how_much_a_cluster_has_read(client, runs, monkeypatch, capsys):
    class Terminal(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    assert main(["summary", str(runs / "after"), "--no-cache", "--dask", client.scheduler.address]) == 0
    assert re.search(r"reading .*100%", sys.stderr.getvalue())
    assert "Straggler: rank 1" in capsys.readouterr().out


def test_a_summary_without_a_scheduler_says_so(distributed, runs, monkeypatch, capsys):
    monkeypatch.setattr(dask_cluster, "CONNECT_TIMEOUT_S", 0.1)
    address = f"tcp://127.0.0.1:{free_port()}"
    assert main(["summary", str(runs / "after"), "--dask", address]) == 1
    assert f"No Dask scheduler at {address}: nothing answers within 0.1 s. Check" in capsys.readouterr().err


def test_the_address_of_a_worker_is_not_that_of_a_scheduler(client, runs, capsys):
    worker = next(iter(client.scheduler_info()["workers"]))
    assert main(["summary", str(runs / "after"), "--dask", worker]) == 1
    assert f"{worker} is a Worker, not a Dask scheduler" in capsys.readouterr().err


def test_invalid_address_is_reported(distributed, tmp_path, capsys):
    assert main(["summary", str(tmp_path), "--dask", "nonsense"]) == 1
    assert "No Dask scheduler at nonsense: missing port number" in capsys.readouterr().err


def test_a_summary_without_dask_says_how_to_install_it(monkeypatch, tmp_path, capsys):
    monkeypatch.setitem(sys.modules, "distributed", None)
    assert main(["summary", str(tmp_path), "--dask", "tcp://127.0.0.1:8786"]) == 1
    assert "pip install 'kinetoscope[dask]'" in capsys.readouterr().err


def test_the_standard_input_is_not_sent_to_a_cluster(client, capsys):
    assert main(["summary", "-", "--dask", client.scheduler.address]) == 1
    assert "Cannot read the standard input on a Dask cluster: write it to a file" in capsys.readouterr().err


def command(*words, **environment):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-m", "kinetoscope", *words], env=os.environ | environment, **pipes)


def test_machines_with_another_version_are_named(client, runs, tmp_path):
    other = tmp_path / "kinetoscope-0.0.9.dist-info" / "METADATA"
    other.parent.mkdir()
    other.write_text("Metadata-Version: 2.1\nName: kinetoscope\nVersion: 0.0.9\n")
    words = ["summary", str(runs / "after"), "--no-cache", "--dask", client.scheduler.address]
    with command(*words, PYTHONPATH=str(tmp_path)) as process:
        _, err = process.communicate(timeout=MAX_WAIT_S)
    assert process.returncode == 1
    assert re.search(r"its worker tcp://\S+ has kinetoscope 0\.1\.0, here it is 0\.0\.9[;.].*Install the same", err)


def test_ctrl_c_takes_the_work_back_and_leaves_the_cluster_alone(client, runs):
    words = ["summary", str(runs / "after"), "--no-cache", "--dask", client.scheduler.address]
    with full_hands(client):
        with command(*words) as process:
            worker_given_work(client)
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=MAX_WAIT_S)
        assert (process.returncode, out) == (130, "")
        assert "Traceback" not in err
        wait_for(lambda: all(len(keys) == 1 for keys in client.processing().values()))
    assert client.submit(abs, -1).result(MAX_WAIT_S) == 1


def test_spool_deleted_before_a_worker_opens_it_is_no_error(client, tmp_path):
    """As at the end of a run: its process saves what is in it, and deletes it."""
    done = run_program(KILLED, tmp_path / "run")
    assert done.returncode == -signal.SIGKILL, done.stderr
    names = list_traces(tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "live")
    *traces, live = map_function(client.get_executor())(load_one, names)
    assert not traces
    assert "went away while it was read" in " ".join(live.notes)


def test_a_file_that_became_a_link_before_a_worker_opens_it_is_not_read(client, runs, tmp_path, monkeypatch):
    run = shutil.copytree(runs / "before", tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    names = list_traces("run")
    (run / "rank1.json").rename(tmp_path / "outside.json")
    (run / "rank1.json").symlink_to(tmp_path / "outside.json")
    with pytest.raises(UnsafePathError, match=r"rank1[.]json is, or lies behind, a symbolic link"):
        list(map_function(client.get_executor())(load_one, names))
