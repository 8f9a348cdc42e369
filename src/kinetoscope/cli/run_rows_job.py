"""Job of ``kinetoscope view``: write the rows of the list of runs into the user's cache."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from kinetoscope.analysis.analyze import analyze_into_cache
from kinetoscope.analysis.run_report import RunReport
from kinetoscope.core.background.background_process import exit_when_detached, lower_priority
from kinetoscope.core.background.jobs import run_job
from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.core.text.wording import format_file_size
from kinetoscope.errors import KinetoscopeError
from kinetoscope.formats.run_row import RunRow, write_row
from kinetoscope.frames.load import list_traces
from kinetoscope.report.descriptions import describe_saving
from kinetoscope.report.page.overview import build_run_overview
from kinetoscope.server.run_search import FoundRun, find_runs

MAX_BYTES = 1_000_000_000
"""Larger traces are not read for a list, since that would take long."""

_COMPRESSION_RATIO = 10
_COMPRESSED = (".gz", ".zst")


def fill_rows(folder: str, runs: Sequence[str]) -> int:
    """Write a row of each of the ``runs`` in ``folder``, one after the other."""
    run_at_low_priority()
    for name in runs:
        path = RunFolder(folder).path_of(name)
        found = find_run(path)
        if found is not None:
            write_row(path, compute_row(path, found.content_hash))
    return 0


def run_at_low_priority() -> None:
    """Lower the priority of this process, and end it with the process that waits for it."""
    exit_when_detached()
    lower_priority()
    os.environ["POLARS_MAX_THREADS"] = "1"  # polars reads it at its first query


def find_run(path: Path, max_entries: int | None = None) -> FoundRun | None:
    """Return the run in the folder ``path`` itself, as a list of runs finds it.

    None if there is none, or if the folder contains more than ``max_entries``.
    """
    with suppress(OSError, KinetoscopeError):
        found = find_runs(RunFolder(path), max_entries)
        return next((run for run in found.runs if run.name == "." and found.is_complete), None)
    return None


def compute_row(path: Path, content_hash: str) -> RunRow:
    """Return the row of the run in the folder ``path``, from its traces or from a cached report."""
    try:
        names = list_traces(str(path))
        if (size_bytes := count_bytes(names)) > MAX_BYTES:
            return RunRow(
                content_hash=content_hash, why_unknown=f"Its traces are large ({format_file_size(size_bytes)})."
            )
        return build_row(analyze_into_cache(names, path), content_hash)
    except (KinetoscopeError, OSError) as error:
        return RunRow(content_hash=content_hash, why_unknown=f"{error}")


def build_row(report: RunReport, content_hash: str) -> RunRow:
    """Return the row of a run from its report."""
    run = report.run
    finding = next((finding for finding in report.findings if finding.confidence != "low"), None)
    on_devices = [row.peak_bytes for row in report.memory if row.device is not None]
    peaks = on_devices or [row.peak_bytes for row in report.memory]
    return RunRow(
        content_hash=content_hash,
        num_steps=run["num_steps"],
        step_ns=run["step_ns"],
        finding=finding.title if finding else "" if report.is_judged else None,
        saving=describe_saving(finding, run) if finding else "",
        mfu=run["mfu"],
        peak_bytes=max(peaks, default=None),
        peak_is_of_cpu=not on_devices,
        ranks=run["ranks"],
        hosts=run["hosts"],
        devices=sorted({row.device_name for row in report.ranks if row.device_name}),
        why_unknown="" if report.is_judged else "No findings: see the notes of its report.",
        overview=msgspec.to_builtins(build_run_overview(report)),
    )


def count_bytes(names: Sequence[str]) -> int:
    """Return the size of traces, without their compression."""
    files = (name for name in names if os.path.isfile(name))
    return sum(os.path.getsize(name) * (_COMPRESSION_RATIO if name.endswith(_COMPRESSED) else 1) for name in files)


if __name__ == "__main__":
    run_job(fill_rows)
