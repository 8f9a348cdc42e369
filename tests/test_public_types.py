"""The types of the public names: all are known, and the code of users below has the types that it says.

`make check` runs pyright on this file, so an `assert_type` fails there. A test run only sees that the code works.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any, assert_type, get_overloads

import pytest

import kinetoscope
from kinetoscope import Callback, Marker, Profiler, TraceHandler, active_profiler, cyclic_schedule
from kinetoscope.recording.profiler import AnyProfiler
from kinetoscope.recording.run.loop import Batches
from kinetoscope.recording.run.plugin_api import ProfiledState, ProfilerContext, RunContext
from kinetoscope.recording.run.settings import RunSettings

MODULES = ["kinetoscope", "kinetoscope.composer", "kinetoscope.errors", "kinetoscope.testing", "kinetoscope.torch"]
UNTYPED = "def untyped(value):\n    return value\n"


def test_the_types_of_all_public_names_are_known(tmp_path):
    """With their members, and everything that these take and return. ``untyped`` shows that pyright would tell."""
    pytest.importorskip("pyright", reason="pyright is not installed here; `make check` installs it")
    pytest.importorskip("torch")
    package = copy_of_package(tmp_path)
    module_of_public_names(package / "public")
    (package / "public" / "untyped.py").write_text(UNTYPED)
    symbols = verified("kinetoscope.public", tmp_path)
    public = {symbol["name"] for symbol in symbols if symbol["isExported"]}
    assert public >= {f"kinetoscope.public.{name}" for name in kinetoscope.__all__}
    assert {"kinetoscope.recording.run.plugin_api.RunContext.ranks", "kinetoscope.frames.trace_set.TraceSet.spans"} <= {
        symbol["name"] for symbol in symbols
    }
    unknown = {symbol["name"]: reasons(symbol) for symbol in symbols if not symbol["isTypeKnown"]}
    assert unknown.pop("kinetoscope.public.untyped.untyped")
    assert not unknown, json.dumps(unknown, indent=2)


def copy_of_package(folder: Path) -> Path:
    """Return the source of the package that is installed, without its other files."""
    package = folder / "kinetoscope"
    for path in Path(kinetoscope.__file__).parent.rglob("*"):
        if path.suffix in (".py", ".pyi") or path.name == "py.typed":
            target = package / path.relative_to(Path(kinetoscope.__file__).parent)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, target)
    return package


def module_of_public_names(folder: Path) -> None:
    """A package that imports the public names. To pyright every module of ours is public; of this one it follows what
    the public names need, and nothing else."""
    folder.mkdir()
    for name in MODULES:
        names = ", ".join(f"{public} as {public}" for public in public_names(import_module(name)))
        place = "__init__" if name == "kinetoscope" else name.rpartition(".")[2]
        (folder / f"{place}.py").write_text(f"from {name} import {names}\n")


def public_names(module: ModuleType) -> list[str]:
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    return getattr(module, "__all__", own)


def verified(module: str, folder: Path) -> list[dict[str, Any]]:
    """Return pyright's verdict on each symbol. It finds installed packages through the first ``python`` of PATH."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    program = [sys.executable, "-m", "pyright", "--verifytypes", module, "--ignoreexternal", "--outputjson"]
    (empty := folder / "empty").mkdir()
    done = subprocess.run(
        program, capture_output=True, text=True, cwd=empty, env={**os.environ, "PATH": path, "PYTHONPATH": str(folder)}
    )
    report = json.loads(done.stdout)
    assert not report["generalDiagnostics"], report["generalDiagnostics"]
    return report["typeCompleteness"]["symbols"]


def reasons(symbol: dict[str, Any]) -> list[str]:
    found = [each for each in symbol["diagnostics"] if not each["message"].startswith("No docstring")]
    return [f"{each.get('file', '')}: {each['message']}" for each in found]


# -- code of users -----------------------------------------------------------------------------------------------------


@pytest.fixture
def profiler() -> Iterator[Profiler]:
    with Profiler(cyclic_schedule(), spool_folder=False, quiet=True) as profiler:
        yield profiler


def test_batches_keep_the_type_of_what_an_iterable_yields(profiler: Profiler):
    for batch in profiler.batches([1, 2]):
        assert_type(batch, int)
    for batch in profiler.batches(letter for letter in "ab"):
        assert_type(batch, str)
    for number, batch in enumerate(profiler.batches({"loss": 0.5}.items())):
        assert_type(number, int)
        assert_type(batch, tuple[str, float])
    assert_type(profiler.batches(range(3)), Batches[int])
    assert_type(next(profiler.batches(iter([0.5]))), float)


def test_dataloader_batches_have_the_type_of_torch_or_the_declared_one(profiler: Profiler):
    """``DataLoader[T]`` has the type of a sample, here a tuple. Its collate function makes a list of several, which
    torch does not type."""
    pytest.importorskip("torch")
    from torch import Tensor, tensor
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(TensorDataset(tensor([1.0, 2.0])), batch_size=2)
    assert_type(loader, DataLoader[tuple[Tensor, ...]])
    for batch in loader:
        assert_type(batch, Any)
        assert isinstance(batch, list)
    for batch in profiler.batches(loader):
        assert_type(batch, Any)
        assert isinstance(batch, list)
    batches: Iterable[list[Tensor]] = profiler.batches(loader)
    for batch in batches:
        assert_type(batch, list[Tensor])
        assert batch[0].tolist() == [1.0, 2.0]


def test_batches_of_a_loader_that_is_declared_have_its_type(profiler: Profiler):
    def train(loader: Iterable[tuple[int, str]]) -> None:
        for batch in profiler.batches(loader):
            assert_type(batch, tuple[int, str])

    train([(1, "a")])


def test_a_marked_function_keeps_its_type(profiler: Profiler):
    @profiler.marker
    def double(number: int) -> str:
        return str(2 * number)

    assert_type(double(2), str)
    assert_type(profiler.marker("forward"), Marker)
    assert_type(active_profiler(), AnyProfiler | None)


def test_a_source_of_a_user_gets_a_typed_run(profiler: Profiler):
    class Ranks(Callback):
        def window_opened(self, state: ProfiledState) -> None:
            assert_type(state.profiler.run, RunContext)
            assert_type(state.profiler.run.ranks.rank, int)
            self.rank = state.profiler.run.ranks.rank

    class Handler(TraceHandler):
        def close(self, state: ProfiledState, logger: object) -> None:
            assert_type(state.profiler.marker("end", categories=("mine",)), Marker)

    inside: ProfilerContext = profiler
    assert inside.run.ranks.rank == 0
    source = Ranks()
    source.window_opened(profiler.state)
    assert source.rank == 0
    Handler().close(profiler.state, None)


def test_arguments_of_one_name_have_one_type_and_one_default():
    """They stand where users and their editors read them, so in several places (docs/decisions/025)."""
    pytest.importorskip("torch")
    from kinetoscope import composer, torch

    profiler = get_overloads(Profiler.__init__)[0]
    own_sources = {"record_shapes", "profile_memory", "with_stack", "with_flops"}  # None: as TorchProfiler has it
    for first, second, exceptions in (
        (profiler, kinetoscope.profile, {"schedule"}),  # `profile` has a default
        (profiler, RunSettings, set[str]()),
        (kinetoscope.JSONTraceHandler, kinetoscope.TorchProfiler, {"folder", "filename", "remote_file_name"}),
        (kinetoscope.JSONTraceHandler, kinetoscope.profile, set[str]()),
        (kinetoscope.TorchProfiler, kinetoscope.profile, own_sources | {"activities"}),  # a text: torch is not loaded
        (kinetoscope.JSONTraceHandler, composer.JSONTraceHandler, set[str]()),
        (kinetoscope.TorchProfiler, composer.TorchProfiler, set[str]()),
        (kinetoscope.SystemProfiler, composer.SystemProfiler, set[str]()),
        (torch.profile, kinetoscope.TorchProfiler, {"profile_memory", "with_flops"}),  # on by default, as Composer's
    ):
        one, other = arguments(first), arguments(second)
        shared = set(one) & set(other) - exceptions
        assert {name: one[name] for name in shared} == {name: other[name] for name in shared}
    given = arguments(Profiler.__init__)
    for name, (_, default) in arguments(profiler).items():
        assert given[name][1] == default or name == "schedule"


def arguments(function: object) -> dict[str, tuple[str, object]]:
    parameters = signature(function).parameters.values()  # pyright: ignore[reportArgumentType]
    return {each.name: (str(each.annotation).strip("'\""), each.default) for each in parameters}
