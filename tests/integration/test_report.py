"""The report that a real run writes at its end tells nothing about its user. Real torch."""

import os

import pytest

from support.fork_server import run_with_torch
from support.page_data import page_bytes

pytest.importorskip("torch")
PROGRAM = """
import torch
import kinetoscope

SECRET_IN_SOURCE = "correct horse battery staple"


def secret_step(layer, batch):
    layer(batch).sum().backward()


schedule = kinetoscope.cyclic_schedule(skip_first=0, warmup=1, active=3, per="run")
layer = torch.nn.Linear(8, 8)
with kinetoscope.profile("runs/mine", schedule=schedule, with_stack=True, report=True, quiet=True) as profiler:
    for batch in profiler.batches([torch.ones(4, 8)] * 5):
        with profiler.marker("my marker"):
            secret_step(layer, batch)
"""


def test_the_report_of_a_run_has_lines_of_code_but_no_home_no_user_and_no_source(tmp_path):
    home = tmp_path / "home" / "alice.secret"
    project = home / "project"
    project.mkdir(parents=True)
    (project / "train.py").write_text(PROGRAM)
    environment = os.environ | {"HOME": str(home), "USER": "alice.secret", "LOGNAME": "alice.secret"}
    change = "import kinetoscope.handlers.top_finding as search; search.MAX_SECONDS_WITH_REPORT = 100; "
    change += f"import runpy; runpy.run_path({str(project / 'train.py')!r}, run_name='__main__')"

    done = run_with_torch(change, folder=project, environment=environment)
    assert done.returncode == 0, done.stderr

    content = page_bytes((project / "runs" / "mine" / "report.html").read_text())
    assert b"train.py(" in content
    assert b": secret_step" in content
    for secret in (b"alice", b"/home", str(tmp_path).encode(), b"battery staple"):
        assert secret not in content
