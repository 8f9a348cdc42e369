"""Start-up hook of each Python process below `kinetoscope run`; it must run on any version of Python, however old.

It runs the user's own sitecustomize, and imports kinetoscope only after torch has been imported.
"""

import os
import sys


def _leave_path():
    """Remove this folder from sys.path, which is then that of the plain command."""
    bootstrap = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if not entry or os.path.abspath(entry) != bootstrap]
    sys.path_importer_cache.pop(bootstrap, None)


def _import_user_sitecustomize():
    """Import the next sitecustomize on sys.path; its errors are the user's, and Python reports them as always."""
    this_module = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize
    except ImportError as error:
        if getattr(error, "name", None) != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = this_module


class _ImportHook(object):
    """A finder that finds nothing; when a module is imported, it makes its loader call a function afterwards."""

    def __init__(self, name, call):
        self._name, self._call = name, call

    def find_spec(self, name, path=None, target=None):
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        try:
            from importlib.util import find_spec

            spec = find_spec(name)
            self._call_after(spec.loader)
        except Exception:
            return None  # the module is missing or broken: its usual finder reports that
        return spec

    def _call_after(self, loader):
        execute = loader.exec_module

        def exec_module(module):
            del loader.exec_module
            execute(module)
            self._call()

        loader.exec_module = exec_module


def _start_recording():
    try:
        shadowing_file = _find_shadowing_file()
        if shadowing_file is not None:
            return _print_once(
                "{0} is found in place of kinetoscope. Give that file another name.".format(shadowing_file)
            )
        from kinetoscope.autoinstrument.instrumentation import watch_process

        watch_process()
    except ImportError as error:
        _print_once(
            "{0} cannot import kinetoscope ({1}). Install it there: {0} -m pip install kinetoscope".format(
                sys.executable, error
            )
        )
    except Exception as error:
        _write("kinetoscope run: nothing is recorded: {0}\n".format(error))


def _find_shadowing_file():
    """Return a file of the user's named kinetoscope, such as the script itself, which an import would run."""
    from importlib.util import find_spec

    spec = find_spec("kinetoscope")
    return None if spec is None or spec.submodule_search_locations is not None else spec.origin


def _print_once(reason):
    if os.environ.get("RANK", "0") == "0" and os.environ.get("LOCAL_RANK", "0") == "0":
        _write("kinetoscope run: nothing is recorded, because {0}\n".format(reason))


def _write(line):
    """Write past the buffer of stderr, where text that a full disk rejects would change the exit code."""
    try:
        sys.stderr.flush()
        os.write(sys.stderr.fileno(), line.encode("utf-8", "replace"))
    except Exception:
        pass  # stderr is None, closed or an object of the user's: training starts without the line


def _report_without_torch():
    """Report, at the exit of the command's own process, that it has not imported torch.

    The traceback of a program that failed, or of Ctrl-C, explains enough.
    """
    if "torch" in sys.modules or hasattr(sys, "last_type"):
        return
    try:
        import json

        if json.loads(os.environ["KINETOSCOPE_AUTO"])["pid"] == os.getpid() and _find_shadowing_file() is None:
            from kinetoscope.autoinstrument.unrecorded import report_without_torch

            report_without_torch()
    except Exception:
        pass  # kinetoscope cannot be imported here


def _wait_for_torch():
    if "KINETOSCOPE_AUTO" in os.environ and sys.version_info >= (3, 4):
        import atexit

        atexit.register(_report_without_torch)
        sys.meta_path.insert(0, _ImportHook("torch", _start_recording))


def _set_seeds():
    """Set the seeds of random and numpy under `kinetoscope try`, before the script's first line can use them."""
    seed = os.environ.get("KINETOSCOPE_TRIAL_SEED")
    if seed is None or sys.version_info < (3, 4):
        return

    def seed_random():
        sys.modules["random"].seed(int(seed))

    def seed_numpy():
        sys.modules["numpy"].random.seed(int(seed))

    for name, set_seed in (("random", seed_random), ("numpy", seed_numpy)):
        if name in sys.modules:
            set_seed()
        else:
            sys.meta_path.insert(0, _ImportHook(name, set_seed))


try:
    _leave_path()
    _wait_for_torch()
    _set_seeds()
finally:
    _import_user_sitecustomize()
