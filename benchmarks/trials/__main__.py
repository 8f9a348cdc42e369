"""Compare `kinetoscope try` with edits of planted programs: `python -m benchmarks.trials --help`.

Each finished run is a line of ``benchmarks/results/trials.jsonl``, written at once. A second start continues: it skips
the runs that are there, but for edits of an earlier boot and runs whose time was over. ``trials.md`` is made from the
finished runs after each one; wrong verdicts stay in it.
"""

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median

from benchmarks.machine import describe_machine
from benchmarks.trials.programs import BUSY_PROGRAMS, PROGRAMS, SAME_VARIANTS, EditedProgram
from benchmarks.trials.records import Kind, TrialRecord, append_record, build_key, read_records, render_table
from kinetoscope.autoinstrument.trial_files import TrialSettings
from kinetoscope.cli.signals import catch_signals
from kinetoscope.errors import KinetoscopeError
from kinetoscope.experiments.experiment import ExperimentRun, Options
from kinetoscope.experiments.guard_job import guard_starts
from kinetoscope.experiments.plan import Request, parse_requests
from kinetoscope.experiments.start import Command, InterruptedTrialError, run_start
from kinetoscope.experiments.statistics import compute_typical_step_ns
from kinetoscope.formats.experiments import Experiment
from kinetoscope.variants.registry import load_variants

RESULTS = Path(__file__).parents[1] / "results"
BOOT = Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
_TIMEOUT_S = 300.0
_NUM_BUSY, _NUM_EDITS = 2, 3
_NUM_OTHERS_EACH_REPEAT = 2
"""Runs without a change, and with busy processes, per repeat of the planted programs: 20 with 10 repeats."""


@dataclass(frozen=True)
class _Planned:
    """A run to do."""

    kind: Kind
    program: str
    number: int

    @property
    def key(self) -> tuple[str, ...]:
        return build_key(self.kind, self.program, self.number, BOOT)


def main() -> int:
    """Do the planned runs that are not finished, until the time is over or Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trials", description=__doc__)
    parser.add_argument("--only", action="append", choices=PROGRAMS, default=[], help="run this program; repeatable")
    parser.add_argument("--repeats", type=int, default=10, help="run each planted program N times")
    parser.add_argument("--minutes", type=float, default=100.0, help="start no further run after M minutes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--num-steps", type=int, default=60)
    parser.add_argument(
        "--max-seconds",
        type=float,
        default=45.0,
        help="time limit of each run of try; twice that for six rows, two ranks, and with busy processes",
    )
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of trials.jsonl and trials.md")
    arguments = parser.parse_args()
    options = Options(arguments.num_steps, arguments.rounds, arguments.max_seconds, compares_results=False)
    planned = list(_plan(arguments.only or list(PROGRAMS), arguments.repeats))
    path = arguments.results / "trials.jsonl"
    with catch_signals() as received:
        code = _run_all(planned, path, options, arguments.minutes * 60, lambda: not received.empty())
    num_planned = Counter[Kind](one.kind for one in planned)
    (arguments.results / "trials.md").write_text(render_table(read_records(path), num_planned), encoding="utf-8")
    return code


def _plan(programs: Sequence[str], num_repeats: int) -> Iterator[_Planned]:
    """Yield all runs, so that the first ones are of all kinds and programs."""
    for number in range(num_repeats):
        if number < _NUM_EDITS:
            yield from (_Planned("edit", program, number) for program in programs)
        yield from (_Planned("planted", program, number) for program in programs)
        for index in range(_NUM_OTHERS_EACH_REPEAT * number, _NUM_OTHERS_EACH_REPEAT * (number + 1)):
            yield _Planned("same", programs[index % len(programs)], index)
            busy = [program for program in BUSY_PROGRAMS if program in programs] or list(programs)
            yield _Planned("busy", busy[index % len(busy)], index)


def _run_all(
    planned: Sequence[_Planned], path: Path, options: Options, max_s: float, is_interrupted: Callable[[], bool]
) -> int:
    """Do the runs that have no record yet; return 130 after an interrupt, 1 if a run failed."""
    end, code = time.monotonic() + max_s, 0
    finished = {record.key for record in read_records(path) if record.is_complete}
    remaining = [one for one in planned if one.key not in finished]
    _print(f"{len(planned)} runs planned, {len(planned) - len(remaining)} finished before")
    durations = list[float]()
    for position, one in enumerate(remaining, start=1):
        if time.monotonic() > end:
            _print(f"The time is over: {len(remaining) - position + 1} runs are left. Start again to continue.")
            return code
        try:
            record = _measure(one, options, is_interrupted)
        except InterruptedTrialError:
            _print("Interrupted. Start again to continue.")
            return 130
        except KinetoscopeError as error:
            _print(f"failed: {one.kind}, {one.program}: {error}")
            code = 1
            continue
        append_record(path, record)
        durations.append(record.duration_s)
        left_min = (len(remaining) - position) * median(durations) / 60
        _print(f"[{position}/{len(remaining)}] {_describe(record)}; about {left_min:.0f} minutes left")
    return code


def _describe(record: TrialRecord) -> str:
    change = "" if record.change is None else f" {100 * record.change:+.1f} %"
    verdicts = f" {', '.join(record.verdicts)}" if record.verdicts else ""
    return f"{record.kind}, {record.program} ({record.number + 1}):{change}{verdicts}, {record.duration_s:.0f} s"


def _print(line: str) -> None:
    print(line, flush=True)


def _measure(one: _Planned, options: Options, is_interrupted: Callable[[], bool]) -> TrialRecord:
    load, started = os.getloadavg()[0] / (os.cpu_count() or 1), time.monotonic()
    planted = PROGRAMS[one.program]
    with tempfile.TemporaryDirectory() as folder, _busy_processes(_NUM_BUSY if one.kind == "busy" else 0):
        command = _write_program(planted, Path(folder))
        if one.kind == "edit":
            rows, is_complete = [], True
            with guard_starts(Path(folder)):
                edit = _measure_edit(command, options, Path(folder), is_interrupted)
        else:
            requests, options = _choose_requests(one.kind, planted, options, Path(folder))
            experiment = _try(command, requests, options, Path(folder), is_interrupted)
            rows, is_complete, edit = experiment.rows, experiment.is_complete, None
    only = rows[0] if len(rows) == 1 else None
    return TrialRecord(
        kind=one.kind,
        program=one.program,
        number=one.number,
        date=time.strftime("%Y-%m-%d"),
        machine=f"{os.cpu_count()} cores, {describe_machine()['cpu']}",
        boot=BOOT,
        load=load,
        duration_s=time.monotonic() - started,
        change=edit if only is None else only.change,
        interval=None if only is None else only.interval,
        verdicts=[row.verdict for row in rows],
        is_complete=is_complete,
    )


def _choose_requests(
    kind: Kind, planted: EditedProgram, options: Options, folder: Path
) -> tuple[list[Request], Options]:
    if kind != "planted" or planted.num_ranks > 1:  # more rows, or slower starts
        options = replace(options, max_s=2 * options.max_s)
    if kind != "same":
        return parse_requests([planted.fix], load_variants(), None), options
    file = folder / "same_variants.py"
    file.write_text(SAME_VARIANTS)
    variants = load_variants([file])
    requests = parse_requests([one for one in variants if one.startswith("nothing_")], variants, None)
    return requests, replace(options, files=(str(file),))


def _try(
    command: Command,
    requests: Sequence[Request],
    options: Options,
    folder: Path,
    is_interrupted: Callable[[], bool],
) -> Experiment:
    starts = folder / "starts"
    run = ExperimentRun(
        command, requests, options, starts, is_interrupted=is_interrupted, report=lambda line: _print(f"    {line}")
    )
    with guard_starts(starts):
        experiment = run.run()
    if run.was_interrupted:
        raise InterruptedTrialError
    return experiment


def _write_program(planted: EditedProgram, folder: Path) -> Command:
    script = folder / "program.py"
    script.write_text(planted.text)
    words = [sys.executable]
    if planted.num_ranks > 1:
        words += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(planted.num_ranks)]
    return Command([*words, script.name], folder)


def _measure_edit(command: Command, options: Options, folder: Path, is_interrupted: Callable[[], bool]) -> float:
    """Return the relative change of the step by the edit, over interleaved starts after one that is not counted."""
    edited = Command([*command.words, "edited"], command.folder)
    logs = list[float]()
    for number in range(options.num_rounds + 1):
        pair = [command, edited] if number % 2 else [edited, command]
        steps = {
            id(one): _step_ns(one, folder / f"edit-{number}-{index}", options, is_interrupted)
            for index, one in enumerate(pair)
        }
        if number:
            logs.append(math.log(steps[id(edited)] / steps[id(command)]))
    return math.expm1(fmean(logs))


def _step_ns(command: Command, folder: Path, options: Options, is_interrupted: Callable[[], bool]) -> float:
    settings = TrialSettings(folder=str(folder), num_steps=options.num_steps)
    result = run_start(command, settings, timeout_s=_TIMEOUT_S, is_interrupted=is_interrupted)
    if not result.ranks:
        raise KinetoscopeError(f"{result.reason}\n{result.log_tail}")
    return max(compute_typical_step_ns(rank.step_times_ns) for rank in result.ranks)


@contextmanager
def _busy_processes(count: int) -> Iterator[None]:
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main())
