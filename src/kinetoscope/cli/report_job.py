"""Job of ``kinetoscope view``: write the report that a browser waits for."""

import argparse
from collections.abc import Sequence

from kinetoscope.cli import report
from kinetoscope.core.background.background_process import exit_when_detached
from kinetoscope.core.background.jobs import run_job
from kinetoscope.core.paths.run_folder import RunFolder


def write_report(folder: str, wanted: Sequence[str]) -> int:
    """Write a report to the first of the ``wanted``: on the run of this name, or on the second compared with it."""
    exit_when_detached()
    output, *names = wanted
    parser = argparse.ArgumentParser()
    report.add_arguments(parser)
    paths = (str(RunFolder(folder).path_of(name)) for name in names)
    return report.run(parser.parse_args([*paths, "--output", output]))


if __name__ == "__main__":
    run_job(write_report)
