"""The tests of the Composer face. They need Composer, and run in an environment of their own: `make test-composer`."""

import gc
import importlib.util
import logging
import sys
from pathlib import Path

import pytest

STUBS = Path(__file__).parents[2] / "support" / "composer_stubs"

if importlib.util.find_spec("composer"):
    sys.path.append(str(STUBS))  # last, so that the real modules are found first
else:
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items):
    folder = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(folder):
            item.add_marker(pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning"))
            item.add_marker(pytest.mark.filterwarnings("ignore::FutureWarning"))


@pytest.fixture(autouse=True)
def trainers_end_with_their_test():
    """Collects garbage after each test: a Trainer's engine closes itself then, and not during another test."""
    yield
    gc.collect()


@pytest.fixture(autouse=True)
def inside_a_folder_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def nothing_goes_wrong_unnoticed(caplog, request):
    """Any error that the profiler logs fails the test, unless the test is marked to expect errors."""
    yield
    errors = [record.getMessage() for record in caplog.get_records("call") if record.levelno >= logging.ERROR]
    errors = [error for error in errors if "kinetoscope" in error or "failed" in error or "Error" in error]
    assert request.node.get_closest_marker("reports_errors") or not errors
