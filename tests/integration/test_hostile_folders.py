"""Every command on hostile run folders: nothing outside is read into a file, written, deleted or sent.
``KINETOSCOPE_HOSTILE_FOLDERS=200`` is the long form (`make test-long`).
"""

import json
import os
import shutil
import signal
from pathlib import Path

import pytest

from support.fork_server import READ_SETTINGS, RUN_COMMAND, S3_MODULES, run_forked
from support.hostile_folders.generator import STRANGE, Outside, damage_run, make_outside
from support.object_store.s3 import BUCKET, FaultyProxy, S3Server

NUM_FOLDERS = int(os.environ.get("KINETOSCOPE_HOSTILE_FOLDERS", "12"))
ALLOWED = f"/{BUCKET}/allowed/"
MAX_BYTES = 1 << 30
VISIT = READ_SETTINGS + (Path(__file__).parents[1] / "support" / "hostile_folders" / "run_all_commands.py").read_text()
VISITING = (
    *(*S3_MODULES, "polars", "rich.markdown", "rich._emoji_codes", "kinetoscope.server.site"),
    *map("kinetoscope.report.{}".format, ("terminal", "comparison", "what_if", "sections.build")),
    *map("kinetoscope.cli.{}".format, ("summary", "report", "whatif", "diff")),
)

RUN = """
import os, sys, time
from pathlib import Path
from kinetoscope import JSONTraceHandler, Profiler, ProfilerAction
from kinetoscope.uploads.upload_queue import add_upload
def plan(state): return ProfilerAction.ACTIVE_AND_SAVE if state.timestamp.batch in (1, 3) else ProfilerAction.ACTIVE
run, url = Path(sys.argv[1]), sys.argv[2]
with Profiler(plan, JSONTraceHandler(f"{run}/traces", num_traces_to_keep=1, remote_file_name=None)) as profiler:
    for batch in profiler.batches(range(100)):
        with profiler.marker("work"):
            pass
        if batch == 5:
            profiler.lifecycle.drain(60)
            add_upload(run, 0, run / "traces" / "ep0-ba2-rank0.json", f"{url}/ep0-ba2-rank0.json")
            os.kill(os.getpid(), 9)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A run with saved windows and an open one, a merged trace, a cache and a queue."""
    folder = tmp_path_factory.mktemp("killed") / "run"
    done = run_forked(VISITING, RUN, folder, f"s3://{BUCKET}/allowed")
    assert done.returncode == -signal.SIGKILL
    traces = folder / "traces"
    more = ["convert", traces / "ep0-ba2-rank0.json", "-o", traces / "some.parquet"]
    for arguments in (["merge", "-o", traces / "merged_trace.json", traces], ["info", folder], more):
        run_forked(VISITING, RUN_COMMAND, *arguments).check_returncode()
    [live] = (folder / "live").iterdir()
    (live / "contributed" / "2").mkdir(parents=True)
    shutil.copy(traces / "ep0-ba2-rank0.json", live / "contributed" / "2" / "kineto.json")
    return folder


@pytest.fixture(scope="module")
def server():
    server = S3Server()
    server.make_bucket(f"other-{BUCKET}")
    yield server
    server.close()


@pytest.fixture
def store(server):
    """The store, behind a proxy that keeps every request."""
    proxy = FaultyProxy(server.port, fault_share=0.0)
    yield proxy
    proxy.close()


def seen(folder):
    """Everything in a folder that a command could change."""
    paths = [folder, *sorted(folder.rglob("*"))]
    states = [path.lstat() for path in paths]
    contents = [path.read_bytes() if path.is_file() else None for path in paths]
    return [(str(p), s.st_ino, s.st_mode, s.st_mtime_ns, c) for p, s, c in zip(paths, states, contents, strict=True)]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("seed", range(NUM_FOLDERS))
def test_no_command_touches_anything_outside_of_a_hostile_folder(tmp_path, killed, server, store, seed):
    outside = tmp_path / "outside"
    make_outside(outside, killed)
    run = Path(shutil.copytree(killed, tmp_path / "given" / "run"))
    changes = damage_run(run, Outside(outside, BUCKET), seed)
    (tmp_path / "out").mkdir()
    (tmp_path / "home").mkdir()
    before, places = seen(outside), sorted(os.listdir(tmp_path))

    environment = server.environment(store.endpoint) | {
        "HOME": str(tmp_path / "home"),
        "TMPDIR": str(tmp_path / "home"),
    }
    environment |= {
        "http_proxy": store.endpoint,
        "https_proxy": store.endpoint,
        "STORAGE_EMULATOR_HOST": store.endpoint,
    }
    environment |= {"no_proxy": "127.0.0.1"}
    arguments = (run, tmp_path / "out", seed, f"s3://{BUCKET}/allowed")
    done = run_forked(VISITING, VISIT, *arguments, environment=environment, timeout_s=240)

    visits = [json.loads(line) for line in done.stdout.splitlines()]
    story = "\n".join(
        [*changes, *(f"{visit.get('command')}: {visit.get('status')}\n{visit.get('written')}" for visit in visits)]
    )
    assert done.returncode == 0, f"{done.stderr}\n{story}"
    assert seen(outside) == before, story
    assert sorted(os.listdir(tmp_path)) == places, story
    assert sorted(os.listdir(tmp_path / "given")) == ["run"], story
    written = done.stderr + "".join(visit.get("written", "") for visit in visits)
    assert "Traceback" not in written, f"{done.stderr}\n{story}"
    assert "\x1b" not in written
    assert STRANGE not in written, story
    sent = [(line, body) for line, body in store.requests if not line.split()[1].startswith(ALLOWED)]
    assert not sent, story
    if not any(change.endswith("is a second") for change in changes):  # it may be used like the first
        assert all(b"SECRET" not in body for _, body in store.requests), story
        assert "shows what is outside" not in written, story
    assert visits[-1]["peak_bytes"] < MAX_BYTES, story
