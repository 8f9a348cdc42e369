"""Our own threads, kept out of profiles of Python's frames: real threads with a real profile function."""

import os
import runpy
import sys
import threading

import pytest

from kinetoscope.core.background import background_thread as own_thread_module
from kinetoscope.core.background.background_thread import BackgroundThread, unprofile_background_threads
from kinetoscope.core.background.private_names import find_set_profile


class Busy:
    """A thread in the middle of a job, with a profile function that counts; leaving the block ends it."""

    def __init__(self, make_thread):
        self.num_calls = 0
        self.profiles = []
        self._begun, self._ask, self._answered, self._end = (threading.Event() for _ in range(4))
        self._thread = make_thread(self._work)

    def _work(self):
        sys.setprofile(self._count)
        self._begun.set()
        while not self._end.is_set():
            if self._ask.wait(0.001):
                self._ask.clear()
                self.profiles.append(sys.getprofile())
                self._answered.set()
        sys.setprofile(None)

    def _count(self, frame, what, argument):
        self.num_calls += 1

    def profile(self):
        """Return the thread's own profile function."""
        self._answered.clear()
        self._ask.set()
        assert self._answered.wait(30)
        return self.profiles[-1]

    def __enter__(self):
        self._thread.start()
        assert self._begun.wait(30)
        return self

    def __exit__(self, *error):
        self._end.set()
        self._thread.join()


def own_thread(target):
    return BackgroundThread(target, "kinetoscope-test")


def users_thread(target):
    return threading.Thread(target=target)


needs_a_tried_python = pytest.mark.skipif(
    find_set_profile() is None, reason="the function that sets a profile was not tried with this version of Python"
)


@needs_a_tried_python
def test_busy_kinetoscope_thread_is_no_longer_profiled():
    with Busy(own_thread) as busy:
        assert busy.profile() is not None
        assert busy.num_calls > 0
        unprofile_background_threads()
        assert busy.profile() is None
        before = busy.num_calls
        busy.profile()
        assert busy.num_calls == before


def test_untested_python_version_leaves_all_profiles_unmodified(monkeypatch):
    """CPython may change the function that we call without notice, and then calling it could crash."""
    monkeypatch.setattr(sys, "version_info", (3, 99, 0, "final", 0))
    later = runpy.run_path(own_thread_module.__file__)
    with Busy(lambda target: later["BackgroundThread"](target, "kinetoscope-test")) as busy:
        later["unprofile_background_threads"]()
        assert busy.profile() is not None


def test_the_users_threads_stay_profiled():
    with Busy(users_thread) as busy, Busy(own_thread):
        unprofile_background_threads()
        assert busy.profile() is not None


def test_a_thread_that_has_ended_is_left_alone():
    with Busy(own_thread):
        pass
    unprofile_background_threads()


@needs_a_tried_python
@pytest.mark.skipif(not hasattr(threading, "setprofile_all_threads"), reason="new in CPython 3.12")
def test_a_profile_of_all_threads_does_not_include_our_threads():
    with Busy(users_thread) as users, Busy(own_thread) as internal:
        threading.setprofile_all_threads(users._count)
        unprofile_background_threads()
        try:
            assert internal.profile() is None
            assert users.profile() is not None
        finally:
            threading.setprofile_all_threads(None)


def test_a_forked_child_has_threads_of_its_own_only():
    with Busy(own_thread):
        child = os.fork()
        if child == 0:
            unprofile_background_threads()
            thread = own_thread(lambda: None)
            thread.start()
            thread.join(30)
            os._exit(thread.is_alive())
        assert os.waitpid(child, 0)[1] == 0


def test_thread_with_a_raising_target_leaves_the_list_of_kinetoscope_threads(monkeypatch):
    monkeypatch.setattr(threading, "excepthook", lambda arguments: None)
    thread = own_thread(lambda: 1 / 0)
    thread.start()
    thread.join(30)
    unprofile_background_threads()
