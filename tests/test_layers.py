"""Imports between packages, as docs/architecture.md lists them."""

import ast
import functools
import graphlib
import re
import sys
from collections.abc import Iterator
from inspect import get_annotations
from pathlib import Path

import pytest

from kinetoscope.recording.driver import Driver
from kinetoscope.recording.profiler import Profiler

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "kinetoscope"
LIVE = {
    "core",
    "formats",
    "spool",
    "pulse",
    "hooks",
    "variants",
    "recording",
    "torch",
    "uploads",
    "sources",
    "handlers",
    "merge",
}

ALLOWED: dict[str, set[str]] = {
    "errors": set(),
    "native": {"_native", "_kineto_save"},
    "core": set(),
    "pages": set(),
    "formats": {"core", "native"},
    "spool": {"core", "formats", "native"},
    "pulse": {"core", "formats", "native"},
    "hooks": {"core", "pulse"},
    "variants": {"core", "hooks"},
    "recording": {"core", "formats", "spool", "pulse", "hooks", "native"},
    "torch": {"core", "formats", "pages", "hooks", "recording", "native"},
    "uploads": {"core", "formats"},
    "sources": {"core", "formats", "hooks", "recording", "torch", "uploads", "native"},
    "merge": {"core", "formats", "spool", "native"},
    "handlers": {"core", "formats", "spool", "pulse", "recording", "uploads", "merge", "native"},
    "api": LIVE | {"native"},
    "testing": LIVE,
    "frames": {"core", "formats", "spool", "pulse", "native"},
    "analysis": {"core", "pulse", "frames", "formats", "native"},
    "report": {"core", "analysis", "frames", "formats", "pages"},
    "status": {"core", "spool", "pulse", "pages"},
    "server": {"core", "formats", "spool", "pulse", "pages", "status"},
    "composer": LIVE,
    "auto": {"autoinstrument"},
    "autoinstrument": {"core", "api", "formats", "hooks", "native", "pulse", "recording", "sources", "variants"},
    "integrations": LIVE | {"api", "autoinstrument"},
    "experiments": {"core", "formats", "analysis", "autoinstrument", "variants"},
    "cli": LIVE
    | {"api", "autoinstrument", "frames", "analysis", "report", "pages", "status", "server", "testing", "native"}
    | {"experiments"},
    "__main__": {"cli"},
    "__init__": LIVE | {"api", "integrations", "frames", "analysis", "report"},
}
ANALYSIS_ORDER = (
    "base",
    "windows",
    "gpu",
    "cpu",
    "modules",
    "memory",
    "steps",
    "ranks",
    "replay",
    "findings",
    "run",
    "compare",
)
"""Packages of analysis; each imports those before it. *run* and *base* are the files beside them."""
ANALYSIS_BASE = {"plain_data", "notebook_repr"}
CORE_ORDER = ("text", "clock", "paths", "background", "job")
RECORDING_ORDER = (
    "private_names",
    "process_groups",
    "markers",
    "window",
    "hangs",
    "messages",
    "run",
    "driver",
    "profiler",
)
"""Files and packages of core and recording; each imports those before it."""

# Packages that these packages may import; None means any.
OUTSIDE: dict[str, set[str]] = {
    "errors": set(),
    "core/text": {"jinja2"},
    "core/clock": set(),
    "core/paths": {"psutil"},
    "core/background": set(),
    "core/job": {"msgspec", "psutil"},
    "formats": {"msgspec", "isal", "zstandard"},
    "spool": {"msgspec", "isal"},
    "pulse": {"msgspec", "psutil"},
    "merge": {"msgspec", "isal"},
}


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


@functools.cache
def imports_of(path: Path) -> frozenset[str]:
    """Return the full names that a file imports anywhere in it, for types only or not, and modules in its strings."""
    return frozenset(_imports_in(ast.parse(path.read_text(encoding="utf-8")), path))


def _imports_in(tree: ast.AST, path: Path) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import; write the full name"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in MODULES - JOBS:
            yield node.value


FILES = sorted(SOURCE.rglob("*.py"))
MODULES = {module_of(path) for path in FILES} - {"kinetoscope"}
JOBS = {module for module in MODULES if module.endswith("_job")}
"""Modules that run in processes of their own: a package that starts one does not import it."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_file_imports_only_what_its_package_may(path):
    package_name = package_of(path)
    assert package_name in ALLOWED, f"{package_name} is no package: add it to ALLOWED and to docs/architecture.md"
    own_names = {name.split(".")[1] for name in imports_of(path) if name.startswith("kinetoscope.")}
    public = {"__version__"}  # the package itself knows its version
    forbidden = own_names - ALLOWED[package_name] - {package_name, "errors"} - public
    assert not forbidden, f"{path.relative_to(ROOT)} is in {package_name}, which must not import {sorted(forbidden)}"


def analysis_package_of(module: str) -> str:
    """Return the package in ANALYSIS_ORDER of a module, or of a name in it, in ``kinetoscope.analysis``."""
    part = [*module.split("."), ""][2]
    return part if part in ANALYSIS_ORDER else "base" if part in ANALYSIS_BASE else "run"


@pytest.mark.parametrize("path", [path for path in FILES if package_of(path) in ("core", "recording")], ids=module_of)
def test_a_package_within_core_and_recording_imports_only_those_before_it(path):
    order = CORE_ORDER if package_of(path) == "core" else RECORDING_ORDER
    part = [*module_of(path).split("."), ""][2]
    allowed = {*order[: 1 + order.index(part)]} if part else set()
    imported = {name for name in imports_of(path) if name.startswith(f"kinetoscope.{package_of(path)}.")}
    assert {name.split(".")[2] for name in imported} <= allowed


@pytest.mark.parametrize("path", [path for path in FILES if package_of(path) == "analysis"], ids=module_of)
def test_a_package_of_analysis_imports_only_those_before_it(path):
    imported = {name for name in imports_of(path) if name.startswith("kinetoscope.analysis.")}
    allowed = ANALYSIS_ORDER[: 1 + ANALYSIS_ORDER.index(analysis_package_of(module_of(path)))]
    later = {name for name in imported if analysis_package_of(name) not in allowed}
    assert not later


@pytest.mark.parametrize(
    ("package", "order"), [("core", CORE_ORDER), ("analysis", ANALYSIS_ORDER), ("recording", RECORDING_ORDER)]
)
def test_the_architecture_page_lists_the_packages_of_a_package_in_their_order(package, order):
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    (listed,) = re.findall(rf"^Packages of `{package}`, in their order: (.*?)\.", text, re.MULTILINE | re.DOTALL)
    files = {"base", "private_names", "process_groups", "driver", "profiler"} | (
        {"run"} if package == "analysis" else set()
    )
    assert re.findall(r"`(\w+)`", listed) == [name for name in order if name not in files]


def test_no_files_import_one_another_in_a_loop():
    modules = {module_of(path): path for path in FILES}
    needs = {}
    for module, path in modules.items():
        names = imports_of(path)
        names |= {name.rpartition(".")[0] for name in names if name not in modules}
        needs[module] = (names & modules.keys()) - {module, "kinetoscope"}
    graphlib.TopologicalSorter(needs).prepare()  # its error names the loop


@pytest.mark.parametrize("package_name", sorted(OUTSIDE))
def test_base_package_imports_only_these_packages(package_name):
    for path in (
        path for path in FILES if path == SOURCE / f"{package_name}.py" or SOURCE / package_name in path.parents
    ):
        outside = {name.split(".")[0] for name in imports_of(path)} - set(sys.stdlib_module_names) - {"kinetoscope"}
        assert outside <= OUTSIDE[package_name], (
            f"{path.relative_to(ROOT)} imports {sorted(outside - OUTSIDE[package_name])}"
        )


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_file_imports_an_underscore_from_another_file(path):
    private = {name for name in imports_of(path) if name.startswith("kinetoscope.") and name.split(".")[-1][0] == "_"}
    own_names = {name for name in private if not name.endswith(("__version__", "._native", "._kineto_save"))}
    torchs = {name for name in own_names if path.parent.name == "torch" and name.split(".")[-1] in TORCHS_UNDERSCORES}
    assert not own_names - torchs


# torch.profiler exports these semi-public names, so our package_name does too.
TORCHS_UNDERSCORES = {"_ExperimentalConfig", "_KinetoProfile", "_ITraceObserver", "_WARNINGS_SHOWN"}


def test_one_file_loads_the_native_extension():
    in_c = ("kinetoscope._native", "kinetoscope._kineto_save")
    found = {path for path in FILES if any(name.startswith(in_c) for name in imports_of(path))}
    assert [path.relative_to(SOURCE).as_posix() for path in found] == ["native.py"]


ARCHITECTURE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_architecture_page_has_the_same_table():
    rows = re.findall(r"^\| `(\w+)` \| .* \| (.+) \|$", ARCHITECTURE, re.M)
    sets = {"core": {"core"}, "live half": LIVE, "none": set()}
    for name, cell in rows[:-1]:
        parts = cell.split(", ")
        listed = set().union(*(sets[part] if part in sets else {part.strip("`")} for part in parts))
        assert listed == ALLOWED[name] - {"native"}, name
    assert rows[-1] == ("cli", "all but `composer`, `integrations` and `auto`")
    files = {"errors", "native", "__main__", "__init__"}
    assert {name for name, _ in rows} == ALLOWED.keys() - files
    assert ALLOWED["cli"] >= ALLOWED.keys() - files - {"composer", "integrations", "auto", "cli"}


def test_the_architecture_page_fits_two_screens_and_its_files_exist():
    lines = ARCHITECTURE.splitlines()
    assert len(lines) <= 106
    assert not [line for line in lines if len(line) > 140]
    files = re.findall(r"`(\w+/[\w/]+\.py)`", ARCHITECTURE)
    roots = (SOURCE, SOURCE / "recording", ROOT)
    assert not [file for file in files if not any((root / file).exists() for root in roots)]


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("__init__.py")), ids=lambda path: path.parent.name)
def test_the_docstring_of_a_package_names_existing_modules(path):
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    listed = re.findall(r"(?<!`)`(\w+)`(?!`)", docstring)
    known = {part for module in MODULES for part in module.split(".")}
    assert not [name for name in listed if name not in known]


LIVE_PACKAGES = ("hooks", "recording", "sources", "core")
DOCUMENTED = {"sys._getframe", "os._exit"}
"""Python documents these, underscore and all, and its own library needs them."""


@pytest.mark.parametrize(
    "path",
    [path for path in FILES if package_of(path) in LIVE_PACKAGES],
    ids=lambda path: str(path.relative_to(SOURCE)),
)
def test_private_names_of_other_libraries_are_in_one_file_per_package(path):
    if path.name == "private_names.py":
        return
    tree = ast.parse(path.read_text(encoding="utf-8"))
    imported = {name for name in imports_of(path) if "._" in name and not name.startswith("kinetoscope.")}
    modules = {
        alias.asname or alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
    }
    used = {
        f"{node.value.id}.{node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules
        if node.attr.startswith("_") and not node.attr.startswith("__")
    }
    forbidden = imported | used - DOCUMENTED
    assert not forbidden, f"{path.relative_to(ROOT)} has {sorted(forbidden)}: give them an entry in private_names.py"


DRIVERS = ("autoinstrument", "integrations")
DRIVER_API = {
    "driver": {"Driver"},
    "profiler": {"Profiler", "active_profiler"},
    "markers.marker": {"Marker"},
    # Values for the argument `schedule` of `kinetoscope.profile`.
    "markers.schedule": {
        *("CyclePlan", "CyclicSchedule", "ProfilerAction", "PulseOnly", "Schedule", "ScheduleState"),
        "cyclic_schedule",
    },
    "window.triggered_window": {"TriggeredWindow"},
    "messages.standard_error": {"write_line"},  # for lines of a command that recorded nothing
}
"""Names that packages which drive a run may import from `recording`."""

COMPOSER_API = {
    # Public classes, from which those of `composer` derive.
    "profiler": {"AnyProfiler"},
    "markers.marker": {"Marker", "MarkerSettings", "ProfilerMarkers", "MarkerArguments", "MAX_CACHED_MARKERS"},
    "markers.schedule": {"ProfilerAction", "cyclic_schedule"},
    "window": {"trace_handler"},
    # The run that the events of a Trainer drive.
    "run.lifecycle": {"RunLifecycle"},
    "run.settings": {"RunSettings", "check_callbacks"},
    "run.plugin_api": {"RunContext"},
    # Spans of Composer's engine.
    "markers.native_recorder": {"NativeRecorder"},
    "window.cycle": {"Cycle", "LastingSpans"},
}
"""Names that `composer`, whose loop is a peer of the plain one (decision 039), imports from `recording`."""


NOT_FOR_DRIVERS = {"run", "lifecycle"}
"""Attributes of profilers for sources and handlers, and for loops."""


def private_names_in(tree: ast.AST) -> set[str]:
    """Return the attributes of drivers and profilers that code uses, and that are not public."""
    public = {
        kind: {name for name in (*dir(kind), *get_annotations(kind)) if name[0] != "_"} - NOT_FOR_DRIVERS
        for kind in (Driver, Profiler)
    }
    kinds = {"driver": Driver, "profiler": Profiler}
    found = set()
    for node in ast.walk(tree):
        owner, name = None, None
        if isinstance(node, ast.Attribute):
            owner, name = node.value, node.attr
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr" and len(node.args) > 1:
            owner, name = node.args[0], ast.literal_eval(node.args[1]) if isinstance(node.args[1], ast.Constant) else ""
        kind = kinds.get(_last_name(owner))
        if kind is not None and name not in public[kind]:
            found.add(f"{kind.__name__}.{name}")
    return found


def _last_name(node: ast.AST | None) -> str:
    """Return the name of a variable or attribute, without underscores before it; that of a `getattr` too."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr" and isinstance(node.args[1], ast.Constant):
        return str(node.args[1].value).lstrip("_")
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name.lstrip("_")


@pytest.mark.parametrize(
    "path", [path for path in FILES if package_of(path) in DRIVERS], ids=lambda path: str(path.relative_to(SOURCE))
)
def test_drivers_of_a_run_use_the_driver_api_only(path):
    prefix = "kinetoscope.recording."
    allowed = {f"{prefix}{module}.{name}" for module, names in DRIVER_API.items() for name in names}
    imported = {name for name in imports_of(path) if name.startswith(prefix)}
    assert imported <= allowed, f"{path.relative_to(ROOT)} imports {sorted(imported - allowed)}"
    forbidden = private_names_in(ast.parse(path.read_text(encoding="utf-8")))
    assert not forbidden, f"{path.relative_to(ROOT)} uses {sorted(forbidden)}, which are private"


def test_composer_imports_only_the_listed_parts_of_recording():
    prefix = "kinetoscope.recording."
    listed = {f"{prefix}{module}.{name}" for module, names in COMPOSER_API.items() for name in names}
    files = [path for path in FILES if package_of(path) == "composer"]
    assert {name for path in files for name in imports_of(path) if name.startswith(prefix)} == listed


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("self._driver.on_step()", set()),
        ("profiler.driver.on_step()", set()),
        ("profiler.run.close()", {"Profiler.run"}),
        ("profiler.lifecycle.close(clean=True)", {"Profiler.lifecycle"}),
        ("profiler.driver._loop.step()", {"Driver._loop"}),
        ("getattr(getattr(state, 'profiler', None), 'run', None)", {"Profiler.run"}),
    ],
)
def test_use_outside_of_the_driver_api_is_found(code, found):
    assert private_names_in(ast.parse(code)) == found


MAX_PUBLIC_METHODS = 25


def public_methods_of(node: ast.ClassDef) -> set[str]:
    """Return the names of the public methods that a class defines, without properties."""
    defined = (each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef))
    return {
        each.name
        for each in defined
        if not each.name.startswith("_") and not any(map(_is_property, each.decorator_list))
    }


def _is_property(decorator: ast.expr) -> bool:
    return ast.unparse(decorator).endswith(("property", ".setter"))


@pytest.mark.parametrize("path", FILES, ids=module_of)
def test_no_class_has_more_than_25_public_methods(path):
    classes = (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.ClassDef))
    large = {node.name: len(names) for node in classes if len(names := public_methods_of(node)) > MAX_PUBLIC_METHODS}
    assert not large, f"{path.relative_to(ROOT)}: {large}; a class with so many has several subjects"
