"""The cores of a process in a container with a CPU quota."""

import pytest

from kinetoscope.core.paths import available_cores
from kinetoscope.core.paths.available_cores import count_cores


@pytest.mark.parametrize(
    ("files", "num_cores"),
    [
        ({"cpu.max": "150000 100000\n"}, 2),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.cfs_quota_us": "300000\n", "cpu.cfs_period_us": "100000\n"}, 3),
        ({"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}, 8),
        ({"cpu.max": "6400000 100000\n"}, 8),
        ({}, 8),
    ],
)
def test_a_quota_of_a_cgroup_limits_the_cores(files, num_cores, monkeypatch, tmp_path):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(available_cores, "cgroup_folders", lambda controller: [tmp_path, tmp_path / "gone"])
    monkeypatch.setattr(available_cores.os, "sched_getaffinity", lambda pid: range(8), raising=False)
    assert count_cores() == num_cores
