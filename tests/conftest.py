"""Fixtures for every test. They check that a test leaves nothing behind."""

import contextlib
import gc
import os
import random
import shlex
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest

import kinetoscope
from kinetoscope.recording.markers.marker import current_library_recorder
from kinetoscope.variants import registry
from support import chromium

# No deadline: no test depends on the speed of the machine. `make test-long` uses more examples.
hypothesis.settings.register_profile(
    "any-machine", deadline=None, max_examples=int(os.environ.get("KINETOSCOPE_EXAMPLES", "40"))
)
hypothesis.settings.register_profile(
    "first-failure",  # for `make mutate`, which does not need the smallest failing example
    hypothesis.settings.get_profile("any-machine"),
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
)
hypothesis.settings.load_profile("any-machine")

# A job in the background (a shell's `&`) ignores SIGINT, and one below nohup SIGHUP. Programs that tests start would
# inherit that, and Python would raise no KeyboardInterrupt in them or here.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

TESTS = Path(__file__).parent
MARKERS_OF_PATHS = {
    "integration/": ("slow",),
    "compat/": ("slow",),
    "browser/": ("slow", "browser"),
    "gpu/": ("gpu",),
    "browser/view/": ("network",),
    "integration/clock/": ("network",),
    "integration/uploads/": ("network",),
    "integration/test_dask_cluster.py": ("network",),
    "integration/test_view_": ("network",),
    "unit/server/": ("network",),
}
"""Markers by the start of a test's path, below this folder."""
MAX_USUAL_TIMEOUT_S = 180
"""The limit of pyproject.toml: a test with a longer one is slow."""


@pytest.hookimpl(tryfirst=True)  # before Hypothesis reads it
def pytest_configure(config) -> None:
    """Choose the seed of all property tests of this run, so that a failure can name it."""
    if config.getoption("--hypothesis-seed", None) is None:
        config.option.hypothesis_seed = str(random.SystemRandom().randrange(10**6))


def pytest_collection_modifyitems(items) -> None:
    """Mark tests by their path, and those with a longer time limit as slow."""
    for item in items:
        path = item.path.relative_to(TESTS).as_posix() if item.path.is_relative_to(TESTS) else ""
        for start, markers in MARKERS_OF_PATHS.items():
            for marker in markers if path.startswith(start) else ():
                item.add_marker(marker)
        if any(limit.args and limit.args[0] > MAX_USUAL_TIMEOUT_S for limit in item.iter_markers("timeout")):
            item.add_marker("slow")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Print with a failed property test the command that reproduces it. Give skips without Chromium one location."""
    report = yield
    if report.skipped and isinstance(report.longrepr, tuple) and report.longrepr[2].endswith(chromium.MISSING):
        report.longrepr = (
            str(TESTS / "support" / "chromium.py"),
            None,
            report.longrepr[2],
        )  # pytest counts them in one line
    if report.failed and call.when == "call" and hypothesis.is_hypothesis_test(getattr(item, "obj", None)):
        settings = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith("KINETOSCOPE_"))
        seed = item.config.getoption("--hypothesis-seed")
        command = [*settings, "python", "-m", "pytest", item.nodeid, f"--hypothesis-seed={seed}"]
        report.sections.append(("Reproduce with", shlex.join(command)))
    return report


def pytest_terminal_summary(terminalreporter) -> None:
    """Print the first failure of each test that ran again (``--reruns``): it may show a fault that is rare."""
    for report in terminalreporter.stats.get("rerun", ()):
        terminalreporter.section(f"{report.nodeid} failed and ran again", "-")
        terminalreporter.write_line(report.longreprtext)


IDLE_RECORDER = current_library_recorder()
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


gc.disable()  # while tests are collected: what is imported and found stays


def pytest_collection_finish() -> None:
    """No later garbage collection has to look through what was imported by now, here and in forked processes."""
    gc.enable()
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def separate_user_cache(tmp_path_factory):
    """Keep the cache of `kinetoscope.load` out of the tester's home folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True, scope="session")
def constant_process_priority():
    """Background commands lower their priority for good, and later tests would take many times as long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "nice", lambda increment: 0, raising=False)
        yield


@pytest.fixture(autouse=True, scope="module")
def gc_frozen_between_files():
    """Cached runs and late imports would make each garbage collection in later files slow.

    Python waits with a full collection until a quarter as many objects are new as the last one has found: so the last
    one is after the freeze, and how often Python collects does not depend on earlier files.
    """
    gc.collect()
    gc.freeze()
    gc.collect()


@contextlib.contextmanager
def same_signal_handlers() -> Iterator[None]:
    """Fail if the block leaves a signal handler behind, and restore the one before: no later test may fail for it."""
    before = {number: signal.getsignal(number) for number in SIGNALS}
    yield
    left = [number for number, handler in before.items() if handler is not None and signal.getsignal(number) != handler]
    for number in left:
        signal.signal(number, before[number])
    assert not left, f"signal handlers left installed: {[number.name for number in left]}"


@pytest.fixture(autouse=True, scope="module")
def signal_handlers_restored_by_module():
    """Fixtures of a file run outside of the check of each test. One that fails may leave what its library installed."""
    with same_signal_handlers():
        yield


@pytest.fixture(autouse=True)
def nothing_left_behind():
    """Fail if a test leaves a thread of ours, a signal handler, an active profiler or recorder, or a variant behind."""
    with same_signal_handlers():
        yield
    threads = [thread for thread in threading.enumerate() if thread.name.startswith(("kinetoscope", "samples of"))]
    for thread in threads:
        thread.join(10)  # after Ctrl-C nothing waited for it, so it may still be ending
    left = [thread.name for thread in threads if thread.is_alive()]
    assert not left, f"threads left running: {left}"
    assert kinetoscope.active_profiler() is None, "a profiler was left active"
    assert current_library_recorder() is IDLE_RECORDER, "markers of libraries were left recording"
    variants = registry._VARIANTS.items()
    foreign = [name for name, one in variants if not one.apply.__module__.startswith("kinetoscope.")]
    assert not foreign, f"variants left registered: {foreign}; use the fixture separate_variants"


@pytest.fixture
def separate_variants(monkeypatch):
    """Let the test register variants that later tests do not see."""
    monkeypatch.setattr(registry, "_VARIANTS", registry.load_variants())
