"""What every test gets: the promise that it leaves nothing behind."""

import gc
import os
import signal
import threading

import hypothesis
import pytest

import kinetoscope

# A loaded machine takes its time; what is asserted does not depend on it. `make test-long` has more examples.
hypothesis.settings.register_profile(
    "any-machine", deadline=None, max_examples=int(os.environ.get("KINETOSCOPE_EXAMPLES", "40"))
)
hypothesis.settings.register_profile(
    "first-failure",  # for `make mutate`, which does not ask for the smallest example that fails
    hypothesis.settings.get_profile("any-machine"),
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
)
hypothesis.settings.load_profile("any-machine")


def pytest_collection_finish() -> None:
    """What was imported by now stays; so no garbage collection has to look through it, here and in forked processes."""
    gc.freeze()


@pytest.fixture(autouse=True, scope="session")
def caches_are_of_this_test_run(tmp_path_factory):
    """What `kinetoscope.load` keeps does not go to the home of whoever tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    """No thread of ours, no signal handler, no active profiler may outlive a test."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    ours = [thread for thread in threading.enumerate() if thread.name.startswith("kinetoscope")]
    for thread in ours:
        thread.join(10)  # after Ctrl-C nobody has waited for it: it may be about to end
    left = [thread.name for thread in ours if thread.is_alive()]
    assert not left, f"threads left running: {left}"
    assert signal.getsignal(signal.SIGTERM) == before, "a SIGTERM handler was left installed"
    assert kinetoscope.active_profiler() is None, "a profiler was left active"
