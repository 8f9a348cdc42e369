"""The GPU kit: results of a run outlive crashes, hangs and a lack of time; the judge writes docs from a GPU's only."""

import json
import os
import sys
import zipfile
from pathlib import Path

import pytest

import kinetoscope

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT))  # what is not installed
from gpu_kit import archive, build, judge, runner  # noqa: E402
from gpu_kit.judging.page import format_table  # noqa: E402
from gpu_kit.judging.results import UnreadableResultsError  # noqa: E402
from gpu_kit.judging.verdicts import find_fault_lines  # noqa: E402
from gpu_kit.parts import FAULTS, HEALTHY, PARTS, PROGRAMS, TIME_LIMIT_S, Part, Task  # noqa: E402
from gpu_kit.tasks import gpu_tests  # noqa: E402

WRITES = "import pathlib, sys; pathlib.Path(sys.argv[1], 'result.json').write_text('{\"value\": 1}')\n"
PROGRAMS_OF_TASKS = {
    "succeeding": WRITES,
    "crashing": f"{WRITES}import os; os.abort()\n",
    "failing": f"{WRITES}sys.exit('it went wrong')\n",
    "hanging": f"{WRITES}import time, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)\n",
}


@pytest.fixture
def kit_run(tmp_path, monkeypatch):
    """Return a function that runs parts with tasks of the programs above, and returns the results."""
    for name, text in PROGRAMS_OF_TASKS.items():
        (tmp_path / f"{name}.py").write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(runner, "_GRACE_S", 0.5)
    monkeypatch.setattr(runner, "_MIN_TASK_S", 0.1)

    def run_parts(*parts, cpu=False):
        run = runner.KitRun(tmp_path / "out", tmp_path / "work", cpu=cpu)
        (tmp_path / "work").mkdir()
        run.run_parts(parts)
        return json.loads((tmp_path / "out" / "results.json").read_text())["parts"], run

    return run_parts


@pytest.mark.parametrize(
    ("program", "status"), [("crashing", "failed"), ("failing", "failed"), ("hanging", "timed out")]
)
def test_a_task_that_ends_badly_costs_nothing_but_itself(tmp_path, kit_run, program, status):
    tasks = (Task(program, program, 3), Task("succeeding", "succeeding", 60))
    parts, _ = kit_run(Part("one", "One", 60, tasks), Part("two", "Two", 60, tasks[1:]))
    assert [task["status"] for task in parts["one"]["tasks"].values()] == [status, "done"]
    assert parts["two"]["tasks"]["succeeding"]["status"] == "done"
    assert all(task["result"] == {"value": 1} for task in parts["one"]["tasks"].values())
    with zipfile.ZipFile(tmp_path / "out" / "1-one.zip") as file:
        assert {f"{program}/result.json", "succeeding/result.json"} <= set(file.namelist())
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["1-one.zip", "2-two.zip", "results.json"]


def test_tasks_out_of_time_are_listed_and_unused_time_passes_to_the_next_part(kit_run):
    task = Task("succeeding", "succeeding", 60)
    parts, run = kit_run(Part("full", "", 0, (task,)), Part("next", "", 60, (task,)))
    assert parts["full"]["tasks"]["succeeding"]["status"] == "not started"
    assert parts["next"]["tasks"]["succeeding"]["status"] == "done"
    assert run.exit_code() == 1


def test_without_a_gpu_tasks_that_need_one_are_listed_as_skipped(kit_run):
    tasks = (Task("hanging", "hanging", 60, cpu=False), Task("succeeding", "succeeding", 60))
    parts, _ = kit_run(Part("one", "", 60, tasks), cpu=True)
    assert parts["one"]["tasks"]["hanging"] == {"status": "skipped", "reason": "needs CUDA"}
    assert parts["one"]["tasks"]["succeeding"]["status"] == "done"


def test_an_archive_grows_by_folders_and_leaves_out_what_would_make_it_too_large(tmp_path, monkeypatch):
    monkeypatch.setattr(archive, "MAX_ARCHIVE_BYTES", 50_000)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "small.json").write_text("{}")
    (folder / "large.bin").write_bytes(os.urandom(60_000))
    (folder / "link").symlink_to(folder / "small.json")
    path = tmp_path / "part.zip"
    left_out = [archive.add_folder(path, folder, name) for name in ("one", "two")]
    with zipfile.ZipFile(path) as file:
        assert file.namelist() == ["one/small.json", "two/small.json"]
        assert file.testzip() is None
    assert [files[0].partition(":")[0] for files in left_out] == ["one/large.bin", "two/large.bin"]
    assert path.stat().st_size <= 50_000


def test_wheels_are_installed_and_unpacked_where_pip_fails(tmp_path, monkeypatch):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    tag = f"cp{sys.version_info.major}{sys.version_info.minor}"
    for name, tags in (("here", f"{tag}-{tag}-linux_x86_64"), ("elsewhere", "cp39-cp39-linux_x86_64")):
        with zipfile.ZipFile(wheels / f"{name}-1.0-{tags}.whl", "w") as file:
            file.writestr(f"{name}_module.py", "")
    run = runner.KitRun(tmp_path / "out", tmp_path, cpu=True)
    run.install(wheels)  # pip refuses them: they have no metadata
    assert sorted(path.name for path in (tmp_path / "site").glob("*_module.py")) == ["here_module.py"]
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["install"]["status"] == "done"
    assert "pip ended with" in results["install"]["how"]


def test_crashed_or_hung_test_loses_only_its_own_result(tmp_path, monkeypatch):
    kit = tmp_path / "kit"
    (kit / "tests" / "gpu").mkdir(parents=True)
    (kit / "pytest.ini").write_text("[pytest]\n")
    (kit / "tests" / "gpu" / "test_some.py").write_text(
        "import os, time, pytest\n"
        "def test_passing(record_property): record_property('offset_us', 3)\n"
        "def test_crashing(): os.abort()\n"
        "def test_hanging(): time.sleep(600)\n"
        "def test_failing(): assert 0\n"
        "def test_skipping(): pytest.skip('no such device')\n"
        "def test_last(): pass\n"
    )
    (tmp_path / "out").mkdir()
    monkeypatch.setattr(gpu_tests, "KIT", kit)
    monkeypatch.setattr(sys, "argv", ["gpu_tests", str(tmp_path / "out")])
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("GPU_KIT_TEST_LIMIT_S", "2")
    with pytest.raises(SystemExit, match=r"test_crashing, tests.*test_hanging, tests.*test_failing"):
        gpu_tests.main()
    tests = json.loads((tmp_path / "out" / "result.json").read_text())["tests"]
    outcomes = {name.rpartition("::")[2]: test["outcome"] for name, test in tests.items()}
    assert outcomes == {
        "test_passing": "passed",
        "test_crashing": "crashed",
        "test_hanging": "crashed",
        "test_failing": "failed",
        "test_skipping": "skipped",
        "test_last": "passed",
    }
    assert tests["tests/gpu/test_some.py::test_passing"]["offset_us"] == 3
    assert "no such device" in tests["tests/gpu/test_some.py::test_skipping"]["reason"]


# -- the kit as it is


def test_the_parts_fit_into_the_kits_time_and_into_eight_files():
    assert sum(part.limit_s for part in PARTS) <= TIME_LIMIT_S
    assert len(PARTS) + 1 <= 8
    names = [task.name for part in PARTS for task in part.tasks]
    assert len(names) == len(set(names))


def test_there_are_twelve_faults_and_four_healthy_programs_each_with_a_program():
    assert (len(FAULTS), len(HEALTHY)) == (12, 4)
    folder = ROOT / "gpu_kit" / "faults"
    assert {path.stem for path in folder.glob("*.py")} == {*PROGRAMS, "program", "layers"}
    assert [fault.program for fault in FAULTS if not find_fault_lines(fault.program)] == []
    assert [fault.program for fault in HEALTHY if find_fault_lines(fault.program)] == []


def test_modules_that_travel_import_nothing_that_a_gpu_machine_lacks():
    stays = {"gpu_kit.build", "gpu_kit.judge", "gpu_kit.judging"}
    allowed = {*sys.stdlib_module_names, "torch", "numpy", "psutil", "pytest", "pynvml", "kinetoscope", "benchmarks"}
    allowed |= {"gpu_kit", "layers", "program"}
    for path in (ROOT / "gpu_kit").rglob("*.py"):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if not any(name == one or name.startswith(f"{one}.") for one in stays):
            assert build.find_imported_packages(path) <= allowed, path


def test_the_wheels_of_the_kit_are_what_a_gpu_machine_lacks_but_for_the_analysis():
    assert {name.partition(">")[0] for name in build.select_requirements()} == {"msgspec", "isal"}


# -- the judge


def turn(variant, step_ns, bytes_per_step=0):
    return {"variant": variant, "num_steps": 30, "step_ns": step_ns, "bytes_per_step": bytes_per_step}


@pytest.fixture
def results(tmp_path):
    """Return a function that writes results of a kit: one recording of a loop that waits for its data."""
    run, out = tmp_path / "run", tmp_path / "out"
    schedule = kinetoscope.cyclic_schedule(skip_first=1, warmup=1, active=10, per="run")
    with kinetoscope.profile(run, schedule=schedule, torch=False, system=False, quiet=True) as profiler:
        for _ in profiler.batches(range(14)):
            pass
    out.mkdir()
    archive.add_folder(out / "4-faults.zip", run, "loader_bound/run")
    times = {"turns": [turn("faulty", 30e6), turn("fixed", 10e6), turn("fixed", 12e6), turn("faulty", 34e6)]}
    tests = {"t.py::test_one": {"outcome": "passed", "offset_us": 2}, "t.py::test_two": {"outcome": "skipped"}}

    def write(device="gpu", gpu=None):
        done = {"status": "done", "seconds": 1.0}
        environment = {"gpu": gpu, "packages": {"kinetoscope": "0.1.0"}}
        medians = {"plain": 5e6, "kinetoscope, in its window": 6e6}
        overhead = {"target_ms": 5, "median_ns": medians, "slow_down": {"kinetoscope, in its window": 0.2}}
        overhead["interval"] = {"kinetoscope, in its window": [0.1, 0.3]}
        skipped = {"status": "skipped", "reason": "needs CUDA", "left_out": []}
        parts = {
            "environment": {"tasks": {"versions": done | {"result": environment}}},
            "tests": {"tasks": {"tests": done | {"result": {"tests": tests}}}},
            "faults": {"tasks": {"loader_bound": done | {"result": {"times": times}}, "float64": skipped}},
            "overhead": {"tasks": {"step_5_ms": done | {"result": overhead}}},
        }
        content = {"schema": 1, "kit": {"commit": "abc"}, "device": device, "date": "2026-01-02", "elapsed_s": 99.0}
        (out / "results.json").write_text(json.dumps(content | {"parts": parts}))
        return out

    return write


@pytest.fixture
def repository(tmp_path):
    """Return a folder with the pages that the judge writes into."""
    root = tmp_path / "repository"
    (root / "docs").mkdir(parents=True)
    (root / "benchmarks" / "results").mkdir(parents=True)
    for name in ("gpu.md", "costs.md"):
        (root / "docs" / name).write_text((ROOT / "docs" / name).read_text())
    return root


GPU = {"name": "NVIDIA Test", "memory_gib": 80.0}


def test_results_of_a_gpu_become_pages_and_numbers_of_the_repository(results, repository):
    before = (repository / "docs" / "costs.md").read_text()
    for _ in range(2):  # writing again changes nothing
        assert judge.judge_folder(results(gpu=GPU), repository) == 0
    page, costs = ((repository / "docs" / name).read_text() for name in ("gpu.md", "costs.md"))
    assert "NVIDIA Test, 80.0 GiB" in page
    assert "| `loader_bound` |" in page
    assert "| 32.00 | 11.00 | 21.00 |" in page  # faulty, fixed and measured, the means of the turns
    assert costs.partition(judge.PART_BEGIN)[0] == before.partition(judge.PART_BEGIN)[0]
    assert "simulated run" not in page
    assert "## Findings that need a GPU" in page
    assert "| kinetoscope, in its window | +20.0 % (+10.0 to +30.0) |" in costs
    assert "Not measured yet" not in costs
    numbers = json.loads((repository / "benchmarks" / "results" / "gpu.json").read_text())
    assert numbers["faults"][0]["measured_ns"] == 21e6


@pytest.mark.parametrize(("device", "gpu"), [("cpu", None), ("gpu", None), ("gpu", {"error": "no driver"})])
def test_other_results_become_pages_next_to_them(results, repository, device, gpu):
    before = sorted(path.read_bytes() for path in repository.rglob("*.md"))
    out = results(device, gpu)
    judge.judge_folder(out, repository)
    assert sorted(path.read_bytes() for path in repository.rglob("*.md")) == before
    assert (out / "gpu.md").exists()
    assert (out / "gpu.json").exists()


def test_skipped_entries_are_listed(results, repository, capsys):
    judge.judge_folder(results("cpu"), repository)
    printed = capsys.readouterr().out
    assert "skipped: faults/float64: skipped: needs CUDA" in printed
    assert "skipped: t.py::test_two" in printed


def test_a_folder_without_results_is_an_error_that_says_so(tmp_path):
    with pytest.raises(UnreadableResultsError, match="no results of a GPU kit"):
        judge.judge_folder(tmp_path, tmp_path)


def test_cells_of_tables_cannot_break_them():
    assert format_table(("a",), [["x | y\nz"]]) == "| a |\n| --- |\n| x \\| y z |\n"
