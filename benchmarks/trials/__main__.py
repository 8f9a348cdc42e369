"""Compare `kinetoscope try` with edits of planted programs, in pieces: `python -m benchmarks.trials --help`.

Each run appends a row to ``benchmarks/results/trials.md``, with the load of the machine. Wrong verdicts stay in it.
"""

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean

from benchmarks.machine import describe_machine
from benchmarks.trials.programs import PROGRAMS, SAME_VARIANTS, EditedProgram
from kinetoscope.autoinstrument.trial_files import TrialSettings
from kinetoscope.experiments.experiment import ExperimentRun, Options
from kinetoscope.experiments.plan import Request, parse_requests
from kinetoscope.experiments.start import Command, run_start
from kinetoscope.experiments.statistics import SAME_SHARE, compute_typical_step_ns
from kinetoscope.formats.experiments import Experiment
from kinetoscope.variants.registry import load_variants

TABLE = Path(__file__).parents[1] / "results" / "trials.md"
_HEADER = """\
# `kinetoscope try` beside edits of planted programs

Written by `python -m benchmarks.trials`. A row is one run of `try`. *edit* is the change of the step by editing the
program, *try* that of the variant with its 95 % interval. *load* is the machine's load average per core before the run:
with a load above 0.3 other processes were running.

| date | machine | program | edit | try | interval | verdict | right | busy processes | load |
|---|---|---|---|---|---|---|---|---|---|
"""
_TIMEOUT_S = 300.0


def main() -> None:
    """Run programs until the time is over, each one ``--repeats`` times."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trials", description=__doc__)
    parser.add_argument("--only", action="append", choices=PROGRAMS, default=[], help="run this program; repeatable")
    parser.add_argument("--repeats", type=int, default=1, help="run each program N times")
    parser.add_argument("--minutes", type=float, default=10.0, help="start no further run after M minutes")
    parser.add_argument("--same", action="store_true", help="measure six variants that change nothing")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--busy", type=int, default=0, help="keep N other processes busy")
    arguments = parser.parse_args()
    end = time.monotonic() + arguments.minutes * 60
    for name in arguments.only or PROGRAMS:
        for _ in range(arguments.repeats):
            if time.monotonic() > end:
                return
            with _busy_processes(arguments.busy):
                measure = _measure_same if arguments.same else _measure
                _append(measure(name, PROGRAMS[name], arguments.rounds, arguments.busy))


def _measure(name: str, planted: EditedProgram, num_rounds: int, num_busy: int) -> str:
    """Return the row of one run, whose verdict should be that of the edit."""
    load = _load()
    with tempfile.TemporaryDirectory() as folder:
        command = _write_program(planted, Path(folder))
        edit = _measure_edit(command, num_rounds, Path(folder, "edit"))
        requests = parse_requests([planted.fix], load_variants(), None)
        (row,) = _try(command, requests, Options(num_rounds=num_rounds), Path(folder)).rows
    expected = "same" if abs(edit) < SAME_SHARE else "slower" if edit > 0 else "faster"
    interval = "" if row.interval is None else f"{row.interval[0]:+.1%} to {row.interval[1]:+.1%}"
    change = "" if row.change is None else f"{row.change:+.1%}"
    right = "yes" if row.verdict == expected else "no"
    return _format_row([name, f"{edit:+.1%}", change, interval, row.verdict, right, str(num_busy)], load)


def _measure_same(name: str, planted: EditedProgram, num_rounds: int, num_busy: int) -> str:
    """Return the row of one run with six variants that change nothing: it is wrong if one has another verdict."""
    load = _load()
    with tempfile.TemporaryDirectory() as folder:
        command = _write_program(planted, Path(folder))
        file = Path(folder, "same_variants.py")
        file.write_text(SAME_VARIANTS)
        variants = load_variants([file])
        requests = parse_requests([one for one in variants if one.startswith("nothing_")], variants, None)
        options = Options(num_rounds=num_rounds, files=(str(file),))
        rows = _try(command, requests, options, Path(folder)).rows
    wrong = [row.verdict for row in rows if row.verdict in ("faster", "slower")]
    cells = [f"{name}, six rows without a change", "0", "", "", ", ".join(wrong) or "none", "no" if wrong else "yes"]
    return _format_row([*cells, str(num_busy)], load)


def _try(command: Command, requests: Sequence[Request], options: Options, folder: Path) -> Experiment:
    run = ExperimentRun(command, requests, options, folder / "starts", is_interrupted=lambda: False, report=print)
    return run.run()


def _write_program(planted: EditedProgram, folder: Path) -> Command:
    script = folder / "program.py"
    script.write_text(planted.text)
    words = [sys.executable]
    if planted.num_ranks > 1:
        words += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(planted.num_ranks)]
    return Command([*words, script.name], folder)


def _load() -> float:
    return os.getloadavg()[0] / (os.cpu_count() or 1)


def _format_row(cells: Sequence[str], load: float) -> str:
    machine = f"{os.cpu_count()} cores, {describe_machine()['cpu']}"
    return "| " + " | ".join([time.strftime("%Y-%m-%d"), machine, *cells, f"{load:.1f}"]) + " |\n"


def _measure_edit(command: Command, num_rounds: int, folder: Path) -> float:
    """Return the relative change of the step by the edit, over interleaved starts after one that is not counted."""
    edited = Command([*command.words, "edited"], command.folder)
    logs = []
    for number in range(num_rounds + 1):
        pair = [command, edited] if number % 2 else [edited, command]
        steps = {id(one): _step_ns(one, folder / f"{number}-{index}") for index, one in enumerate(pair)}
        if number:
            logs.append(math.log(steps[id(edited)] / steps[id(command)]))
    return math.expm1(fmean(logs))


def _step_ns(command: Command, folder: Path) -> float:
    result = run_start(command, TrialSettings(folder=str(folder)), timeout_s=_TIMEOUT_S, is_interrupted=lambda: False)
    if not result.ranks:
        sys.exit(f"{result.reason}\n{result.log_tail}")
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


def _append(row: str) -> None:
    if not TABLE.exists():
        TABLE.write_text(_HEADER, encoding="utf-8")
    with TABLE.open("a", encoding="utf-8") as stream:
        stream.write(row)
    print(row, end="", flush=True)


if __name__ == "__main__":
    main()
