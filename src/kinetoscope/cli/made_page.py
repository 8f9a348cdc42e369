"""cli: ``kinetoscope view FOLDER --make WANTED`` writes a report that somebody waits for in a browser.

``WANTED`` is JSON: the file to write, and the name of a run, or of two that are compared, as names may be any.
"""

import argparse
import json

from kinetoscope.cli import report
from kinetoscope.paths.run_folder import RunFolder
from kinetoscope.writing.side_process import end_when_left


def make_page(folder: RunFolder, wanted: str) -> int:
    """Writes the report on the last of the ``wanted`` runs in ``folder``."""
    end_when_left()
    output, *names = json.loads(wanted)
    parser = argparse.ArgumentParser()
    report.add_arguments(parser)
    return report.run(parser.parse_args([*(str(folder.path_of(name)) for name in names), "--output", output]))
