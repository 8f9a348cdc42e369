"""Defects of torch.profiler, as programs. Each does one thing with a profiler's module and returns the outcome.

Run as a script with the name of a module; prints the outcome of each as JSON.
"""

import contextlib
import gc
import importlib
import json
import os
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

CPU = torch.profiler.ProfilerActivity.CPU
Defect = Callable[[Any, Path], Any]
DEFECTS: list[Defect] = []


def defect(program: Defect) -> Defect:
    DEFECTS.append(program)
    return program


def work() -> None:
    torch.ones(3) + 1


def recorded(module: Any, name: str = "plain", **options: Any) -> Any:
    with module.profile(**options) as profiler, module.record_function(name):
        work()
    return profiler


def trace_of(profiler: Any, folder: Path) -> dict[str, Any]:
    profiler.export_chrome_trace(str(folder / "trace.json"))
    return json.loads((folder / "trace.json").read_text())


def names_in(trace: dict[str, Any]) -> set[str]:
    return {event["name"] for event in trace["traceEvents"]}


@defect
def a_quote_in_a_name(module: Any, folder: Path) -> bool:
    return 'say "hi"' in names_in(trace_of(recorded(module, 'say "hi"'), folder))


@defect
def a_backslash_and_a_newline_in_a_name(module: Any, folder: Path) -> bool:
    return "a\\b\nc" in names_in(trace_of(recorded(module, "a\\b\nc"), folder))


@defect
def a_tab_in_metadata(module: Any, folder: Path) -> bool:
    with module.profile() as profiler:
        profiler.add_metadata("key", "a\tb")
    return trace_of(profiler, folder)["key"] == "a\tb"


@defect
def metadata_that_is_no_string(module: Any, folder: Path) -> bool:
    with module.profile() as profiler:
        profiler.add_metadata("key", [1, 2])
    return trace_of(profiler, folder)["key"] == [1, 2]


@defect
def metadata_that_is_not_json(module: Any, folder: Path) -> str:
    with module.profile() as profiler:
        profiler.add_metadata_json("key", "nonsense")
    trace_of(profiler, folder)
    return "accepted"


@defect
def a_second_export(module: Any, folder: Path) -> bool:
    profiler = recorded(module)
    return trace_of(profiler, folder) == trace_of(profiler, folder)


@defect
def an_export_after_one_that_failed(module: Any, folder: Path) -> bool:
    profiler = recorded(module)
    (folder / "file").write_text("")
    with contextlib.suppress(OSError, RuntimeError):
        profiler.export_chrome_trace(str(folder / "file" / "trace.json"))
    return "plain" in names_in(trace_of(profiler, folder))


@defect
def a_folder_that_is_not_there(module: Any, folder: Path) -> bool:
    recorded(module).export_chrome_trace(str(folder / "new" / "trace.json"))
    return (folder / "new" / "trace.json").exists()


@defect
def a_path_that_is_no_string(module: Any, folder: Path) -> bool:
    recorded(module).export_chrome_trace(folder / "trace.json")
    return (folder / "trace.json").exists()


@defect
def an_export_before_the_stop(module: Any, folder: Path) -> None:
    with module.profile() as profiler:
        work()
        profiler.export_chrome_trace(str(folder / "trace.json"))


@defect
def cycles_in_a_trace_of_all(module: Any, folder: Path) -> int:
    with module.profile(schedule=module.schedule(wait=0, warmup=1, active=1, repeat=3), acc_events=True) as profiler:
        for _ in range(6):
            work()
            profiler.step()
    return len([name for name in names_in(trace_of(profiler, folder)) if name.startswith("ProfilerStep#")])


@defect
def a_run_that_ends_in_the_warmup_of_a_later_cycle(module: Any, folder: Path) -> bool:
    with module.profile(schedule=module.schedule(wait=1, warmup=2, active=1)) as profiler:
        for _ in range(6):
            work()
            profiler.step()
    return "ProfilerStep#3" in names_in(trace_of(profiler, folder))


@defect
def a_schedule_without_a_step(module: Any, folder: Path) -> bool:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        with module.profile(schedule=module.schedule(wait=1, warmup=1, active=1)):
            work()
    return any("step()" in str(warning.message) for warning in shown)


@defect
def a_handler_that_fails_after_the_training(module: Any, folder: Path) -> None:
    def handler(profiler: Any) -> None:
        raise OSError("disk")

    with module.profile(on_trace_ready=handler):
        raise ZeroDivisionError("training")


@defect
def a_profiler_inside_another(module: Any, folder: Path) -> int:
    with module.profile() as outer:
        with module.profile():
            work()
        work()
    return len(outer.events())


@defect
def activities_of_an_iterator(module: Any, folder: Path) -> bool:
    return "plain" in names_in(trace_of(recorded(module, activities=iter([CPU])), folder))


@defect
def stacks_without_the_verbose_configuration(module: Any, folder: Path) -> bool:
    recorded(module, with_stack=True).export_stacks(str(folder / "stacks"))
    return (folder / "stacks").stat().st_size > 0


@defect
def the_name_of_the_worker_after_a_fork(module: Any, folder: Path) -> bool:
    handler = module.tensorboard_trace_handler(str(folder))
    with module.profile(on_trace_ready=handler):
        work()
    child = os.fork()
    if not child:
        with module.profile(on_trace_ready=handler):
            work()
        os._exit(0)
    os.waitpid(child, 0)
    return any(f"_{child}." in path.name for path in folder.iterdir())


# After these, torch's profiler is still recording, so they come last.


@defect
def a_profiler_that_is_dropped(module: Any, folder: Path) -> bool:
    profiler = module.profile()
    profiler.start()
    del profiler
    gc.collect()
    return not still_recording()


@defect
def a_stop_on_another_thread(module: Any, folder: Path) -> str:
    found = []

    def stop() -> None:
        try:
            profiler.stop()
        except Exception as error:
            found.append(type(error).__name__)

    profiler = module.profile()
    profiler.start()
    thread = threading.Thread(target=stop)
    thread.start()
    thread.join()
    outcome = found[0] if found else f"no error, still recording: {torch.autograd._profiler_enabled()}"
    if found:
        profiler.stop()
    still_recording()
    return outcome


def still_recording() -> bool:
    """Return whether a recording is active on this thread; stops it."""
    if torch.autograd._profiler_enabled():
        torch.autograd._disable_profiler()
        torch.autograd.profiler._is_profiler_enabled = False
        return True
    return False


def outcome(program: Defect, module: Any) -> Any:
    """Return the outcome: the return value, or the names of the types of the exception."""
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        try:
            return program(module, Path(folder))
        except Exception as error:
            return [kind.__name__ for kind in type(error).__mro__[:-2]]


if __name__ == "__main__":
    module = importlib.import_module(sys.argv[1])
    print(json.dumps({defect.__name__: outcome(defect, module) for defect in DEFECTS}))
