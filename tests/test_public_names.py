"""The public names: what `import kinetoscope` offers, and what it costs."""

import importlib
import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import kinetoscope

PUBLIC = [
    "Callback",
    "CompileEvents",
    "Driver",
    "Event",
    "Float64Tensors",
    "GCPauses",
    "GrowingMemory",
    "JSONTraceHandler",
    "KinetoscopeError",
    "LoaderFacts",
    "Marker",
    "ModuleCalls",
    "Profiler",
    "ProfilerAction",
    "StackSampler",
    "State",
    "SystemProfiler",
    "Timestamp",
    "TorchProfiler",
    "TraceHandler",
    "active_profiler",
    "analyze",
    "compare",
    "cyclic_schedule",
    "load",
    "marker",
    "merge_traces",
    "profile",
    "view",
]


def test_the_public_names_are_these_and_no_others():
    assert kinetoscope.__all__ == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_each_public_name_can_be_imported_and_has_a_docstring(name):
    pytest.importorskip("torch") if name == "TorchProfiler" else None
    value = getattr(kinetoscope, name)
    assert value.__doc__
    assert name in dir(kinetoscope)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'profyle'"):
        kinetoscope.profyle


def test_importing_kinetoscope_loads_nothing_heavy():
    heavy = ("torch", "numpy", "polars", "rich", "psutil", "jinja2")
    program = f"import sys, kinetoscope; print([name for name in {heavy} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_importing_kinetoscope_loads_none_of_its_packages():
    program = "import sys, kinetoscope; print([m for m in sys.modules if m.startswith('kinetoscope')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['kinetoscope']"


def test_a_process_that_trains_never_loads_what_looks_at_traces(tmp_path):
    """Not even where the run's end tells the first finding and writes a report: another process does."""
    pytest.importorskip("torch")
    program = (
        "import sys, torch, kinetoscope\n"
        "with kinetoscope.profile('run', diagnose=True, report=True, profile_memory=True) as profiler:\n"
        "    for _ in profiler.batches(range(14)): torch.ones(3).sum()\n"
        "offline = ('polars', 'jinja2', 'kinetoscope.frames', 'kinetoscope.analysis', 'kinetoscope.report')\n"
        "print([name for name in offline if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr


def test_profilers_and_markers_come_without_torch_and_numpy():
    program = (
        "import sys; from kinetoscope import Profiler, cyclic_schedule, marker; "
        "p = Profiler(cyclic_schedule()); p.marker('x'); marker('y'); "
        "print([m for m in ('torch', 'numpy', 'polars', 'rich', 'jinja2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


SUPPORT = (Path(__file__).parents[1] / "docs" / "support.md").read_text(encoding="utf-8")
LISTED = {
    module: re.findall(r"`(\w+)`", names)
    for module, names in re.findall(r"^\| `(kinetoscope[\w.]*)` \| ((?:`\w+`(?:, )?)+) \|$", SUPPORT, re.M)
}


def test_the_page_on_support_lists_the_public_names():
    assert LISTED["kinetoscope"] == PUBLIC
    errors = importlib.import_module("kinetoscope.errors")
    assert LISTED["kinetoscope.errors"] == [name for name, value in vars(errors).items() if isinstance(value, type)]


def test_the_reference_and_the_page_on_sources_name_what_is_public():
    docs = Path(__file__).parents[1] / "docs"
    reference = (docs / "extensions" / "generated_pages.py").read_text(encoding="utf-8")
    missing = [name for name in PUBLIC if not re.search(rf"\b{name}\b", reference)]
    assert missing == ["KinetoscopeError"], (
        "Add to TOP_LEVEL in docs/extensions/generated_pages.py; the page of errors has the one."
    )
    page = (docs / "sources.md").read_text(encoding="utf-8")
    sources = [name for name in PUBLIC if getattr(kinetoscope, name).__module__.startswith("kinetoscope.sources.")]
    assert not [name for name in sources if f"`{name}`" not in page], "Add a row to docs/sources.md."


@pytest.mark.parametrize("module", ["kinetoscope.torch", "kinetoscope.composer"])
def test_the_page_on_support_lists_all_names_of_a_compatibility_layer(module):
    pytest.importorskip("torch")
    assert LISTED[module] == importlib.import_module(module).__all__


def test_each_listed_name_of_the_trainers_is_defined_where_the_page_locates_it():
    """Read from the source: the trainers need not be installed."""
    for module in [name for name in LISTED if name.startswith(("kinetoscope.integrations.", "kinetoscope.testing"))]:
        spec = importlib.util.find_spec(module)
        defined = re.findall(r"^\s*class (\w+)", Path(spec.origin).read_text(encoding="utf-8"), re.M)
        assert set(LISTED[module]) <= set(defined), module


def test_the_page_on_support_lists_the_versions_of_the_package():
    project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    pythons = [name.split()[-1] for name in project["project"]["classifiers"] if re.search(r":: 3\.\d+$", name)]
    assert f"| Python | CPython {', '.join(pythons)} |" in SUPPORT
    torch = next(name for name in project["dependency-groups"]["torch"] if name.startswith("torch=="))
    assert f"| torch | 2.6 and newer; developed with {torch[7:].rpartition('.')[0]} |" in SUPPORT
