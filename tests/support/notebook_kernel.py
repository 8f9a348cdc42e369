"""A real kernel that runs the cells of a notebook."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

_START_TIMEOUT_S = 600
"""nbclient waits 60 s, in which no kernel starts on a busy machine. The test has a limit of its own."""


def run_cells(folder: Path, cells: Iterable[str], *, allow_errors: bool = False) -> list[list[Any]]:
    """Return the outputs of each cell. Skip the test where there is no nbclient, nbformat or ipykernel."""
    nbclient, nbformat, _ = map(pytest.importorskip, ("nbclient", "nbformat", "ipykernel"))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    place = {"metadata": {"path": str(folder)}}
    with pytest.MonkeyPatch.context() as patch:
        for variable in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR"):
            patch.setenv(variable, str(folder / variable))
        client = nbclient.NotebookClient(
            notebook, timeout=None, startup_timeout=_START_TIMEOUT_S, resources=place, allow_errors=allow_errors
        )
        client.execute()
    return [cell.outputs for cell in notebook.cells]
