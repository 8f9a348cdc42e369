"""Validation of findings: the top finding names the fault, and the fix saves the predicted time.

`make test` checks three faults, without their fixes. `make validate` measures the fix of each script and what
`kinetoscope try` gains in ten training programs, and writes the tables of docs/predicted-vs-measured.md.
"""

import os
import time

import pytest

import kinetoscope

pytest.importorskip("torch")

from support.fork_server import TORCH_COMPILE_MODULES, run_forked
from support.free_ports import free_port
from support.validation.table import write_row
from support.validation.trials import FAULTS, SCRIPTS, TIMEOUT_S, findings_of, run_training, try_fault
from support.validation.tried_programs import NAMES, NUMS_OF_RANKS, PROGRAMS, try_program

VALIDATES = os.environ.get("KINETOSCOPE_VALIDATION", "0") != "0"
MAX_MINUTES = float(os.environ.get("KINETOSCOPE_VALIDATION_MINUTES", "27"))
STARTED_S = time.monotonic()
NUM_HEALTHY_RUNS = 20
SIZES = {"small": "0.3 ms", "medium": "3 ms", "large": "30 ms"}
BY_NAME = {fault.script: fault for fault in FAULTS}
QUICK = ("slow_getitem", "gc_pressure", "graph_leak")
QUICK_STATES = ("held_lock", "waiting_loader", "new_loaders", "checkpoints", "fsync")

pytestmark = pytest.mark.timeout(900)
whole = pytest.mark.skipif(not VALIDATES, reason="takes minutes of an idle machine: make validate")
each_fault = pytest.mark.parametrize("script", BY_NAME)
each_program = pytest.mark.parametrize("name", NAMES)


# -- in every test run

PREPARED = (*TORCH_COMPILE_MODULES, "kinetoscope.api", "kinetoscope.sources")
# Memory and threads are as `run_training` has them, which starts a Python for each training run.
AS_A_SCRIPT = """
import ctypes, os, runpy, sys, torch
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, LARGE = -1, -3, 2_000_000_000
for parameter in (M_TRIM_THRESHOLD, M_MMAP_THRESHOLD):
    assert ctypes.CDLL(None).mallopt(parameter, LARGE) == 1
torch.set_num_threads(1)
del sys.argv[0]
sys.path[0] = os.path.dirname(sys.argv[0])
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run_quickly(script, *arguments):
    """Run a script where torch is imported already, which saves two thirds of the time of a short run."""
    environment = os.environ | {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "OMP_NUM_THREADS": "1"}
    path = SCRIPTS / f"{script}.py"
    done = run_forked(PREPARED, AS_A_SCRIPT, path, *arguments, environment=environment, timeout_s=TIMEOUT_S)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def quick_runs(tmp_path_factory):
    """Return the folder with a short run of each of three scripts, made by one process."""
    folder = tmp_path_factory.mktemp("quick")
    run_quickly("several", folder, 10, *QUICK)
    return folder


@pytest.mark.skipif(VALIDATES, reason="all faults are tried below")
@pytest.mark.parametrize("script", QUICK)
def test_the_first_finding_names_the_fault_and_its_line(quick_runs, script):
    found = findings_of(quick_runs / script)
    is_busy = any(finding.kind == "processor_contention" for finding in found)
    of_a_busy_machine = ("processor_contention", "python_overhead") if is_busy else ()  # Python takes longer then
    first = next(finding for finding in found if finding.kind not in of_a_busy_machine)
    assert first.kind == BY_NAME[script].kind
    assert first.where.lines[0].rpartition("/")[2] in BY_NAME[script].lines


@pytest.mark.skipif(VALIDATES, reason="all faults are tried below")
@pytest.mark.parametrize("script", QUICK_STATES)
def test_wait_of_the_loop_is_named_with_fitting_advice(tmp_path, script):
    run_quickly(script, tmp_path / script, "--steps", 20)
    fault = BY_NAME[script]
    of_kind = [finding for finding in findings_of(tmp_path / script) if finding.kind in fault.all_kinds]
    # On a busy machine the steps themselves may be reported as well.
    first = next(finding for finding in of_kind if not fault.has_line or _line_of(finding) in fault.lines)
    is_busy = "The machine's cores were busy" in first.advice  # then each batch waits
    assert fault.advice in first.advice or first.kind != fault.kind or is_busy


def _line_of(finding):
    return finding.where.lines[0].rpartition("/")[2] if finding.where.lines else None


@pytest.mark.skipif(VALIDATES, reason="all faults are tried below")
def test_job_with_too_many_threads_is_reported_as_its_own_cpu_contention(tmp_path):
    run_training("oversubscribed", tmp_path / "oversubscribed", "--steps", "20")
    report = kinetoscope.analyze(tmp_path / "oversubscribed", cache=False)
    contention = report.run["contention"]
    assert contention["slowdown"] > 1.1
    own = [finding for finding in report.findings if finding.kind == "processor_contention"]
    note = [note for note in report.run["notes"] if note.startswith("CPU contention")]
    # Beside a busy neighbour the job's own threads may not be the cause.
    assert bool(own) == (contention["own_percent"] >= max(50, 3 * contention["others_percent"]))
    assert bool(note) != bool(own)


AS_A_PROGRAM = """
import os, runpy, sys
from torch.optim.optimizer import register_optimizer_step_post_hook
steps = []
register_optimizer_step_post_hook(lambda *_: steps.append(1) or (len(steps) == 4 and os._exit(7)))
runpy.run_path(sys.argv[1], run_name="__main__")
"""


@each_program
def test_each_program_trains(name):
    ranks = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}
    environment = os.environ | ranks | {"MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    done = run_forked(PREPARED, AS_A_PROGRAM, PROGRAMS / f"{name}.py", environment=environment, timeout_s=TIMEOUT_S)
    assert done.returncode == 7, done.stderr


# -- make validate


@pytest.fixture(scope="module")
def trials(tmp_path_factory):
    """Return a function that tries a fault on its first call, and writes its row."""
    folder, tried = tmp_path_factory.mktemp("faults"), {}

    def trial_of(script):
        if script not in tried:
            (folder / script).mkdir()
            tried[script] = try_fault(BY_NAME[script], folder / script)
            write_row("faults", f"{script}.py", tried[script].cells(), [f"{name}.py" for name in BY_NAME])
        return tried[script]

    return trial_of


@whole
@each_fault
def test_the_first_finding_names_the_fault(trials, script):
    trial = trials(script)
    assert trial.are_named, trial.top_findings
    assert trial.line is not None or not trial.fault.has_line, [first.where.lines for first in trial.top_findings]


@whole
@pytest.mark.parametrize("script", [fault.script for fault in FAULTS if fault.advice])
def test_the_advice_of_the_first_finding_fits_the_call(trials, script):
    fault, top_findings = BY_NAME[script], trials(script).top_findings
    for first in top_findings:
        assert first is not None
        assert fault.advice in first.advice or first.kind != fault.kind


@whole
@pytest.mark.parametrize("script", [fault.script for fault in FAULTS if fault.is_saved])
def test_fix_saves_the_prediction_of_the_top_finding(trials, script):
    trial = trials(script)
    step_ns = max(trial.steps_ns["faulty", "recorded"])
    assert trial.gain_ns() >= max(15_000_000, 0.3 * step_ns), "the training has no fault that matters"
    assert trial.predicted_ns == pytest.approx(trial.gain_ns(), rel=0.2)


@whole
@pytest.mark.parametrize("script", [fault.script for fault in FAULTS if not fault.is_saved])
def test_no_saving_is_predicted_without_a_trusted_replay(trials, script):
    assert [first.saving_ns_per_step for first in trials(script).top_findings] == [None] * 3


@whole
def test_a_leak_is_as_large_as_the_graphs_that_are_kept(trials):
    trial = trials("graph_leak")
    truth = int(trial.printed[0].split()[0])
    for first in trial.top_findings:
        assert dict(first.evidence)["bytes_per_step"] == pytest.approx(truth, rel=0.2)
        assert "losses" in first.title


@whole
@pytest.mark.parametrize("size", SIZES)
def test_a_healthy_run_has_no_finding_of_high_confidence(tmp_path, size):
    out = tmp_path / size
    out.mkdir()
    run_training("healthy", out, "--size", size, "--runs", str(NUM_HEALTHY_RUNS))
    found = [findings_of(out / f"run{number}") for number in range(NUM_HEALTHY_RUNS)]
    wrong = [[finding.kind for finding in findings if finding.confidence == "high"] for findings in found]
    num_right = wrong.count([])
    write_row("healthy", SIZES[size], [f"{num_right} of {NUM_HEALTHY_RUNS}"], list(SIZES.values()))
    assert num_right == NUM_HEALTHY_RUNS, wrong


@pytest.fixture(scope="module")
def minutes_each():
    """Return a function with the minutes that a program may take, of those that are left: each rank counts."""
    nums_left = dict(NUMS_OF_RANKS)

    def share(name):
        left_min = MAX_MINUTES - (time.monotonic() - STARTED_S) / 60
        share_of_rank = left_min / sum(nums_left.values())
        return nums_left.pop(name) * max(0.5, min(2.0, share_of_rank))

    return share


@whole
@each_program
def test_the_top_finding_of_a_program_is_measured(name, tmp_path, minutes_each):
    """Its verdict is written, whatever it is: the page is for findings that were wrong, too."""
    tried = try_program(name, tmp_path, max_minutes=minutes_each(name))
    write_row("programs", f"{name}.py", tried.cells(), [f"{one}.py" for one in NAMES])
    assert tried.rows
