"""The command ``kinetoscope record``: steps of a running job, recorded on demand."""

import argparse
import io
import json
import sys
import time
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager, nullcontext, redirect_stdout
from dataclasses import dataclass
from math import ceil
from pathlib import Path

from kinetoscope.analysis.analyze import analyze_sources
from kinetoscope.analysis.summaries import Selection
from kinetoscope.cli import report as report_command
from kinetoscope.cli.options import add_json, add_num_steps, add_ranks, add_run
from kinetoscope.cli.paths import explain_no_pulse, find_run_folder
from kinetoscope.core.paths.attempt_folders import find_attempt_folders, order_trace_folders
from kinetoscope.core.text.wording import format_count, format_ranks, sanitize_lines
from kinetoscope.errors import KinetoscopeError, SettingsError
from kinetoscope.formats.manifest import read_manifest
from kinetoscope.formats.record_request import (
    MAX_STEPS,
    NAME,
    RecordRequest,
    request_sequence,
    validate_ranks,
    write_request,
)
from kinetoscope.pulse.layout import FOLDER, RequestState
from kinetoscope.pulse.snapshot import RankSnapshot
from kinetoscope.status.health import ENDED_STATES, RankStatus, RunState, read_run_status

_EXAMPLES = """\
examples:
  kinetoscope record runs/digits
      record the next 10 steps of a running job, and print their summary
  kinetoscope record runs/digits -n 20 -r 0,3 --report
      record 20 steps of two ranks, and write a report

The job must run under Kinetoscope, for example under kinetoscope run; its schedule may
skip every step. All ranks record the same steps, a few seconds from now, into the run
folder. Exit code 0: all selected ranks recorded them.
"""
_MIN_LEAD_S, _MIN_LEAD_STEPS = 5.0, 2
_MAX_COPY_AGES = 3  # multiples of the age of a copied pulse: a network file system may delay the request
_POLL_S, _UNSEEN_TIMEOUT_S = 0.25, 60.0
_FINAL_ANSWERS = (RequestState.SAVED, RequestState.LATE, RequestState.REFUSED)
_REASONS = {
    RequestState.NONE: "has not seen the request",
    RequestState.WAITS: "ended before them",
    RequestState.RECORDS: "ended during the recording",
    RequestState.LATE: "had passed them when it saw the request",
    RequestState.SAVED: "saved them, but the trace was moved or deleted (num_traces_to_keep)",
    RequestState.REFUSED: "records all the time by its own schedule, or had 20 requests within an hour",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``record``."""
    parser.epilog = _EXAMPLES
    add_run(parser)
    add_num_steps(parser, 10)
    add_ranks(parser)
    parser.add_argument("--report", action="store_true", help="write report.html into the run folder")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    """Request a recording, wait for it, and print its summary; return 1 if a rank has not recorded all steps."""
    if arguments.num_steps > MAX_STEPS:
        raise SettingsError(f"--num-steps is too large. Pass at most {MAX_STEPS}.")
    run_folder = find_run_folder(arguments.run_folder)
    selected_ranks = None if arguments.ranks is None else validate_ranks(arguments.ranks)
    job = _Job(run_folder, selected_ranks)
    request = job.request(arguments.num_steps)
    job.wait(request)
    traces = job.find_traces(request)
    page = run_folder / report_command.FILE_NAME if arguments.report and traces else None
    if page is not None:
        _write_report(traces, page, is_quiet=arguments.json)
    if arguments.json:
        print(json.dumps(_format_json(job, request, traces, page)))
    elif traces:
        _print_summary(traces)
    missing = [*job.describe_short(request, traces), *job.describe_missing(request, traces)]
    for sentence in missing:
        print(f"error: {sentence}", file=sys.stderr)
    return 1 if missing else 0


@dataclass(frozen=True)
class _RecordedTrace:
    """A trace of a rank, and its number of requested steps."""

    path: Path
    num_steps: int


@dataclass(frozen=True)
class _Rank:
    """A rank of the request: its snapshot and its status."""

    snapshot: RankSnapshot
    status: RankStatus

    def answer(self, request: RecordRequest) -> RequestState:
        """Return the rank's answer to the request."""
        answered = self.snapshot.header.request
        return answered.state if answered.sequence == request.sequence else RequestState.NONE

    def first_step(self, request: RecordRequest) -> int:
        """Return the rank's first recorded step: later than requested if its own schedule was recording."""
        answered = self.snapshot.header.request
        return answered.first_step if answered.sequence == request.sequence else request.first_step

    @property
    def has_ended(self) -> bool:
        """The training loop has ended."""
        return self.snapshot.header.is_saving or self.status.state in ENDED_STATES

    def is_over(self, request: RecordRequest) -> bool:
        """Return whether the rank will record no more of the request."""
        return self.answer(request) in _FINAL_ANSWERS or self.status.state in ENDED_STATES


class _Job:
    """The run in a folder, and its ranks that the request is for."""

    def __init__(self, run_folder: Path, ranks: frozenset[int] | None) -> None:
        self._run_folder, self._ranks = run_folder, ranks
        self._found: Mapping[int, _Rank] = {}

    def _refresh(self) -> None:
        seen = read_run_status(self._run_folder)
        statuses = {status.rank: status for status in seen.ranks}
        self._found = {
            rank: _Rank(snapshot, statuses[rank])
            for snapshot in seen.snapshots
            for rank in [snapshot.header.process.ranks.rank]
            if self._ranks is None or rank in self._ranks
        }

    def request(self, num_steps: int) -> RecordRequest:
        """Write the request file, and return the request.

        Raises:
            KinetoscopeError: no rank could record it, or another request is pending.
        """
        self._refresh()
        self._require_active()
        path = str(self._run_folder / FOLDER / NAME)

        def make(before: RecordRequest | None) -> RecordRequest:
            self._require_seen(before)
            return RecordRequest(
                sequence=request_sequence(path) % 0xFFFF_FFFF + 1,
                num_steps=num_steps,
                first_step=self._first_step(),
                requested_unix_ns=time.time_ns(),
                ranks=self._ranks,
            )

        try:
            return write_request(path, make)
        except OSError as error:
            why = sanitize_lines(error.strerror or error)
            raise KinetoscopeError(
                f"Cannot write the request {sanitize_lines(path)}: {why}. Only the user who started the job may "
                "record it."
            ) from error

    def _require_seen(self, before: RecordRequest | None) -> None:
        """Raise `KinetoscopeError` if a rank may still answer the request that is in the file."""
        if before is None or time.time_ns() - before.requested_unix_ns > _UNSEEN_TIMEOUT_S * 1e9:
            return
        requested = [rank for number, rank in self._found.items() if before.is_for(number)]
        if any(rank.answer(before) is RequestState.NONE and not rank.is_over(before) for rank in requested):
            raise KinetoscopeError(
                f"Another request was first: {format_count(before.num_steps, 'step')} from step {before.first_step:,} "
                "on. Try again when these are recorded."
            )

    def _require_active(self) -> None:
        """Raise `KinetoscopeError` unless a rank can start a recording now."""
        found = self._found.values()
        if not found:
            if self._ranks is None:
                raise KinetoscopeError(sanitize_lines(explain_no_pulse(self._run_folder)))
            raise KinetoscopeError(
                f"No pulse of these ranks in {sanitize_lines(self._run_folder)}. Pass other ranks with -r."
            )
        if all(rank.status.state in ENDED_STATES for rank in found):
            raise KinetoscopeError(f"This run has ended. See its recordings: kinetoscope summary {self._run_folder}")
        if any(rank.snapshot.header.request.state in (RequestState.WAITS, RequestState.RECORDS) for rank in found):
            raise KinetoscopeError("Another recording of this run is in progress. Try again when it has finished.")
        if all(rank.snapshot.step is None for rank in found):
            raise KinetoscopeError("No rank has finished a step yet. Try again later.")

    def _first_step(self) -> int:
        """Return the first step to record: so far ahead that all ranks see the request before."""
        snapshots = [rank.snapshot for rank in self._found.values()]
        newest = max(snapshot.step for snapshot in snapshots if snapshot.step is not None)
        fastest_ns = min((snapshot.step_ns for snapshot in snapshots if snapshot.step_ns), default=1e9)
        age_s = max((time.time_ns() - snapshot.read_ns) / 1e9 for snapshot in snapshots)
        lead_s = max(_MIN_LEAD_S, _MAX_COPY_AGES * age_s)
        return newest + 1 + max(_MIN_LEAD_STEPS, ceil(lead_s * 1e9 / max(fastest_ns, 1.0)))

    def wait(self, request: RecordRequest) -> None:
        """Wait until each rank has recorded the steps or cannot record them any more."""
        since_s = time.monotonic()
        with _open_status_line() as show:
            while not all(rank.is_over(request) for rank in self._found.values()):
                show(self._describe_progress(request))
                time.sleep(_POLL_S)
                self._refresh()
                is_unseen = all(rank.answer(request) is RequestState.NONE for rank in self._found.values())
                if is_unseen and time.monotonic() - since_s > _UNSEEN_TIMEOUT_S:
                    return

    def _describe_progress(self, request: RecordRequest) -> str:
        """Return a line on the progress of the recording."""
        steps = [rank.snapshot.step for rank in self._found.values() if rank.snapshot.step is not None]
        now = f"; the slowest rank is at {min(steps):,}" if steps else ""
        num_saved = sum(rank.answer(request) is RequestState.SAVED for rank in self._found.values())
        found = [rank.status for rank in self._found.values()]
        num_stuck = sum(status.state is RunState.HUNG or status.hang is not None for status in found)
        stuck = f"; {format_count(num_stuck, 'rank')} may hang: run kinetoscope status" if num_stuck else ""
        steps_text = _format_steps(self.first_step(request), request.num_steps).capitalize()
        return f"{steps_text}{now}; {num_saved} of {len(self._found)} ranks saved{stuck}"

    def describe_missing(self, request: RecordRequest, traces: Container[int]) -> list[str]:
        """Return a sentence, with the reason, for each rank of the run that is not in ``traces``."""
        return [
            f"No {_format_steps(rank.first_step(request), request.num_steps)} of rank {number}: "
            f"it {_REASONS[rank.answer(request)]}"
            for number, rank in self._found.items()
            if number not in traces
        ]

    def describe_short(self, request: RecordRequest, traces: Mapping[int, _RecordedTrace]) -> list[str]:
        """Return a sentence for the ranks that have recorded fewer steps, and why."""
        short = {number: found.num_steps for number, found in traces.items() if found.num_steps < request.num_steps}
        if not short:
            return []
        has_ended = all(self._found[number].has_ended for number in short)
        why = "the job ended" if has_ended else "the window was closed early"
        ranks = "" if len(short) == len(traces) else f" on {format_ranks(sorted(short))}"
        return [f"{min(short.values())} of {format_count(request.num_steps, 'step')} recorded{ranks}, {why}."]

    def find_traces(self, request: RecordRequest) -> dict[int, _RecordedTrace]:
        """Return the trace of each rank that has recorded at least the first of the steps."""
        attempt = next(iter(self._found.values())).snapshot.header.process.attempt.restart
        found: dict[int, _RecordedTrace] = {}
        for subfolder in order_trace_folders(self._run_folder):
            folder = find_attempt_folders(self._run_folder / subfolder).get(attempt)
            if folder is not None:
                found |= self._find_saved(folder, request)
        return dict(sorted(found.items()))

    def _find_saved(self, folder: Path, request: RecordRequest) -> Iterator[tuple[int, _RecordedTrace]]:
        """Yield the traces in a folder that contain requested steps, by rank."""
        saved = {number: rank for number, rank in self._found.items() if rank.answer(request) is RequestState.SAVED}
        for manifest in read_manifest(folder):
            for trace in manifest.kept:
                rank = saved.get(manifest.rank)
                if rank is None or not isinstance(end := trace.timestamp.get("batch"), int):
                    continue
                num_steps = end - rank.first_step(request)
                if 0 < num_steps <= request.num_steps:
                    yield manifest.rank, _RecordedTrace(folder / trace.path, num_steps)

    def first_step(self, request: RecordRequest) -> int:
        """Return the first recorded step, the latest one if ranks differ."""
        return max(rank.first_step(request) for rank in self._found.values())

    def answers(self, request: RecordRequest) -> dict[int, RequestState]:
        """Return the answers to the request by rank."""
        return {number: rank.answer(request) for number, rank in self._found.items()}


def _format_steps(first_step: int, num_steps: int) -> str:
    """Return a range of steps, such as ``steps 11 to 20``."""
    return f"steps {first_step:,} to {first_step + num_steps - 1:,}"


@contextmanager
def _open_status_line() -> Iterator[Callable[[str], object]]:
    """Yield a function that replaces the status line of a terminal."""
    if not sys.stderr.isatty():
        yield lambda sentence: None
        return
    from rich.console import Console

    with Console(stderr=True, highlight=False).status("") as status:
        yield status.update


def _print_summary(traces: Mapping[int, _RecordedTrace]) -> None:
    from kinetoscope.report.terminal.screen import print_screen
    from kinetoscope.report.terminal.summary import render_summary

    report = analyze_sources([found.path for found in traces.values()], Selection())
    print_screen(lambda width: render_summary(report, width))
    for found in traces.values():
        print(f"Recorded: {sanitize_lines(found.path)}")


def _write_report(traces: Mapping[int, _RecordedTrace], page: Path, *, is_quiet: bool) -> None:
    parser = argparse.ArgumentParser()
    report_command.add_arguments(parser)
    arguments = parser.parse_args([*(str(found.path) for found in traces.values()), "-o", str(page), "--force"])
    with redirect_stdout(io.StringIO()) if is_quiet else nullcontext():
        report_command.run(arguments)


def _format_json(
    job: _Job, request: RecordRequest, traces: Mapping[int, _RecordedTrace], page: Path | None
) -> dict[str, object]:
    ranks = [
        {
            "rank": number,
            "outcome": answer.name.lower(),
            "trace": str(traces[number].path) if number in traces else None,
            "num_steps": traces[number].num_steps if number in traces else 0,
        }
        for number, answer in job.answers(request).items()
    ]
    report = None if page is None else str(page)
    return {"first_step": job.first_step(request), "num_steps": request.num_steps, "ranks": ranks, "report": report}
