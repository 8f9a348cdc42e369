"""Makes the pages that are made from the source, in ``docs/generated``: commands, reference, findings, examples."""

import ast
import contextlib
import importlib
import io
import os
import re
from pathlib import Path
from textwrap import indent
from typing import Any
from unittest import mock

from thresholds import render_thresholds

import kinetoscope
from kinetoscope import errors
from kinetoscope.analysis.findings.explanations import explanations
from kinetoscope.cli import main

ROOT = Path(__file__).parents[2]

_OPTION = re.compile(r"^  (-.*?)(?:  +|\n)((?:.+\n)(?: {8,}.+\n)*)", re.M)
"""An option in the help of a command: its names, and its description on the same line or below."""

RULES = "src/kinetoscope/analysis/findings/rules"

FROM_FILES = (
    {
        f"{RULES}/README.md": "findings/index.md",
        "src/native/README.md": "native.md",
        "tests/README.md": "project/tests.md",
        "tests/gpu/README.md": "project/gpu-tests.md",
    }
    | {f"{RULES}/{kind}.md": f"findings/{kind}.md" for kind in explanations()}
    | {path.name: f"project/{path.stem.lower()}.md" for path in sorted(ROOT.glob("*.md")) if path.stem != "README"}
)
"""Documents outside of this folder, and their pages."""

TOP_LEVEL = {
    "recording": (
        "Recording",
        "profile Profiler Driver Marker marker active_profiler cyclic_schedule ProfilerAction JSONTraceHandler "
        "TraceHandler Callback Event State Timestamp",
    ),
    "sources": (
        "Sources",
        "TorchProfiler SystemProfiler CompileEvents Float64Tensors GCPauses GrowingMemory LoaderFacts ModuleCalls "
        "StackSampler",
    ),
    "reading": ("Reading traces and runs", "load analyze compare view merge_traces"),
}
"""Pages of the reference, each with a title and names of ``import kinetoscope``."""

OTHERS = {
    "results": (
        "Results of reading",
        (
            ("kinetoscope.frames.trace", "Trace"),
            ("kinetoscope.frames.trace_set", "TraceSet"),
            ("kinetoscope.analysis.run_report", "RunReport RunFacts"),
            ("kinetoscope.analysis.findings.finding", "Finding Where"),
            ("kinetoscope.analysis.compare.comparison", "Comparison"),
        ),
    ),
    "integrations": (
        "Trainers",
        (
            ("kinetoscope.integrations.lightning", "KinetoscopeProfiler KinetoscopeCallback"),
            ("kinetoscope.integrations.transformers", "KinetoscopeCallback"),
            ("kinetoscope.integrations.accelerate", "ProfileKwargs"),
        ),
    ),
    "testing": ("Fakes for tests", (("kinetoscope.testing", "FakeClock MemoryTraceHandler"),)),
}
"""Pages of other modules' names."""

GUIDES = {
    "run": "run",
    "try": "try",
    "summary": "summary",
    "report": "report",
    "diff": "comparing",
    "view": "viewing",
    "status": "status",
    "record": "record",
    "whatif": "replay",
    "upload": "uploads",
    "recover": "how-to/killed-run",
    "explain": "generated/findings/index",
    "convert": "frames",
}
"""The page that describes what a command does in detail, by command."""

MEMBERS = {
    "kinetoscope.Driver": ":",
    "kinetoscope.Marker": ": start, finish, instant, counter",
    "kinetoscope.Profiler": (
        ": batches, step, epoch, eval, driver, marker, start, close, state, get_action, record_chrome_json_trace_file"
    ),
    "kinetoscope.Callback": ":\n   :inherited-members:",
    "kinetoscope.TraceHandler": ":",
    "kinetoscope.frames.trace.Trace": ":\n   :inherited-members:",
    "kinetoscope.integrations.accelerate.ProfileKwargs": ":",
    "kinetoscope.torch.profile": (
        ": start, stop, step, events, key_averages, export_chrome_trace, export_stacks, export_memory_timeline, "
        "add_metadata, add_metadata_json, preset_metadata_json, toggle_collection_dynamic"
    ),
}
"""Members shown of these classes. Of others all are shown, but none of classes that users only make."""


def setup(app: Any) -> dict[str, Any]:
    app.connect("config-inited", lambda app, _: write_pages(Path(app.srcdir) / "generated"))
    return {"parallel_read_safe": True}


def write_pages(folder: Path) -> None:
    """Write all pages. One that has not changed keeps its time, so that Sphinx does not read it again."""
    pages = copied_pages() | example_pages() | command_pages() | reference_pages()
    pages["thresholds.md"] = render_thresholds()
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        if path.relative_to(folder).as_posix() not in pages:
            path.unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def copied_pages() -> dict[str, str]:
    """Return the documents of `FROM_FILES`, with the list of all kinds on the page about findings."""
    pages = {page: (ROOT / path).read_text(encoding="utf-8") for path, page in FROM_FILES.items()}
    rows = "".join(f"| [{kind}]({kind}.md) | {one.meaning} |\n" for kind, one in explanations().items())
    table = f"| kind | meaning |\n|---|---|\n{rows}"
    title, _, text = pages["findings/index.md"].partition("\n\n")
    pages["findings/index.md"] = f"{title}\n\n{table}\n{text}\n{_toctree(explanations())}"
    return pages


def example_pages() -> dict[str, str]:
    """Return a page per example, which starts with its first sentence."""
    pages, sentences = {}, ""
    for path in sorted((ROOT / "examples").glob("*.py")):
        code = path.read_text(encoding="utf-8")
        what = (ast.get_docstring(ast.parse(code)) or "").partition("\n\n")[0]
        pages[f"examples/{path.stem}.md"] = f"# {path.name}\n\n{what}\n\n{_block('python', code)}"
        sentences += f"- [{path.name}]({path.stem}.md): {what}\n".replace("\n", " ").rstrip() + "\n"
    toctree = _toctree(Path(page).stem for page in pages)
    pages["examples/index.md"] = (
        f"# Examples\n\nComplete training scripts, which run on a laptop.\n\n{sentences}\n{toctree}"
    )
    return pages


def command_pages() -> dict[str, str]:
    """Return a page per command, from its ``--help``."""
    overview = _help()
    tasks, usage = overview.partition("\n\nUsage: ")[::2]
    pages = {
        f"commands/{verb}.md": _command_page(verb, f"{what[0].upper()}{what[1:]}.")
        for verb, what in re.findall(r"^  ([a-z]+) +(\S.*)$", overview, re.M)
    }
    toctree = _toctree(Path(page).stem for page in pages)
    table = "| task | command | description |\n|---|---|---|\n" + "".join(
        f"| {task} | [{verb}]({verb}.md) | {what} |\n"
        for task, rows in re.findall(r"^(\w+):\n((?:  .+\n?)+)", tasks, re.M)
        for verb, what in re.findall(r"^  ([a-z]+) +(\S.*)$", rows, re.M)
    )
    pages["commands/index.md"] = f"# Commands\n\n{_block('text', f'Usage: {usage}', 'help')}\n{table}\n{toctree}"
    return pages


def _command_page(verb: str, sentence: str) -> str:
    """Return the help of a command; each option is an entry to which links and the search lead."""
    usage, _, rest = _help(verb).partition("\noptions:\n")
    options, _, examples = rest.partition("\n\n")
    entries = "\n".join(_option(names, text) for names, text in _OPTION.findall(f"{options}\n"))
    program = f"```{{program}} kinetoscope {verb}\n```\n"
    guide = f" Details: {{doc}}`/{GUIDES[verb]}`." if verb in GUIDES else ""
    parts = (
        f"# kinetoscope {verb}\n",
        f"{sentence}{guide}\n",
        _block("text", usage, "help"),
        "## Options\n",
        program,
        entries,
    )
    return "\n".join([*parts, "## Examples\n", _block("text", examples.removeprefix("examples:\n"), "help")])


def _option(names: str, text: str) -> str:
    """Return the entry of an option; options in its description stay code, with their dashes."""
    described = re.sub(r"(?<!\S)--?[a-z][\w-]*", r"`\g<0>`", " ".join(text.split()))
    return f"```{{option}} {names}\n{described}\n```\n"


def _help(*verb: str) -> str:
    """Return the output of ``kinetoscope VERB --help``."""
    printed = io.StringIO()
    with mock.patch.dict(os.environ, COLUMNS="90"), contextlib.redirect_stdout(printed):
        with contextlib.suppress(SystemExit):
            main([*verb, "--help"])
    return printed.getvalue()


def reference_pages() -> dict[str, str]:
    """The reference: every public name with its docstring. Raises KeyError for one that no page has."""
    listed = {name for _, names in TOP_LEVEL.values() for name in names.split()}
    if missing := ({*kinetoscope.__all__} - {*vars(errors)}) ^ listed:  # errors have a page of their own
        raise KeyError(f"The pages of the reference do not have the same public names as kinetoscope: {missing}")
    pages = {
        f"reference/{page}.rst": _titled(title, _entries("kinetoscope", names.split()))
        for page, (title, names) in TOP_LEVEL.items()
    }
    for page, (title, modules) in OTHERS.items():
        entries = "\n".join(_entries(module, names.split()) for module, names in modules)
        pages[f"reference/{page}.rst"] = _titled(title, entries)
    for layer in ("torch", "composer"):
        pages[f"reference/{layer}.rst"] = _titled(f"kinetoscope.{layer}", _layer_entries(f"kinetoscope.{layer}"))
    pages["reference/errors.rst"] = _titled("Errors", _error_entries())
    names = "".join(f"- :doc:`{Path(page).stem}`\n" for page in pages)
    toctree = ".. toctree::\n   :hidden:\n\n" + "".join(f"   {Path(page).stem}\n" for page in pages)
    pages["reference/index.rst"] = _titled("Python API", f"Every public name, by purpose.\n\n{names}\n{toctree}")
    return pages


def _layer_entries(module: str) -> str:
    """Return the entries of a module with the names of another library; names from elsewhere are only listed."""
    layer = importlib.import_module(module)
    homes = {name: _home(getattr(layer, name)) for name in layer.__all__}
    sentence, _, change = (layer.__doc__ or "").strip().partition("\n\n")
    parts = [f"{sentence}\n", f".. code-block:: diff\n\n{indent(change, '   ')}\n"] if change else [f"{sentence}\n"]
    for home, what in (
        ("kinetoscope", "As in :doc:`kinetoscope <index>` itself"),
        ("", "Re-exported from torch"),
    ):
        if names := ", ".join(f"``{name}``" for name, its in homes.items() if its == home):
            parts.append(f"{what}: {names}.\n")
    return "\n".join([*parts, _entries(module, [name for name, home in homes.items() if home == "layer"])])


def _home(value: Any) -> str:
    """Return the home of a name in a compatibility layer: ``layer``, ``kinetoscope``, or an empty string for others."""
    if any(value is getattr(kinetoscope, name) for name in kinetoscope.__all__):
        return "kinetoscope"
    return "layer" if getattr(value, "__module__", "").startswith("kinetoscope") else ""


def _error_entries() -> str:
    tree = (errors.__doc__ or "").partition("\n\n")[2]
    names = [name for name, value in vars(errors).items() if isinstance(value, type)]
    block, _, text = tree.partition("\n\n")
    return f"::\n\n{block}\n\n{text}\n\n{_entries('kinetoscope.errors', names)}"


def _entries(module: str, names: list[str]) -> str:
    """The directives that put the docstrings of these names on a page."""
    home = importlib.import_module(module)
    return "\n".join(_entry(f"{module}.{name}", getattr(home, name)) for name in names)


def _entry(name: str, value: Any) -> str:
    if not isinstance(value, type):
        return f".. autofunction:: {name}\n"
    lines = [f".. autoclass:: {name}"]
    if name in MEMBERS or not _is_only_made(value):
        lines.append(f"   :members{MEMBERS.get(name, ':')}")
    if name.startswith("kinetoscope.composer."):  # so that `TorchProfiler` in a signature leads to ours
        lines.append("   :no-index:")
    return "\n".join([*lines, ""])


def _is_only_made(value: type) -> bool:
    """Return whether users make objects of a class, and call none of its methods themselves."""
    return issubclass(value, kinetoscope.Callback) or value.__module__.startswith("kinetoscope.integrations")


def _titled(title: str, text: str) -> str:
    return f"{title}\n{'=' * len(title)}\n\n{text}"


def _block(language: str, text: str, css_class: str = "") -> str:
    option = f":class: {css_class}\n\n" if css_class else ""
    return f"````{{code-block}} {language}\n{option}{text.rstrip()}\n````\n"


def _toctree(names: Any) -> str:
    return "```{toctree}\n:hidden:\n\n" + "".join(f"{name}\n" for name in names) + "```\n"
