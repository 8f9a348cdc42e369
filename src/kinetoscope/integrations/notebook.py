"""Integration with notebooks: ``%load_ext kinetoscope``, then ``%%kinetoscope`` at the top of a cell that trains."""

import ast
import importlib.util
import sys
from functools import partial
from pathlib import Path
from typing import Any

import kinetoscope
from kinetoscope.core.paths.short_paths import short_path
from kinetoscope.errors import SettingsError
from kinetoscope.integrations.arguments import ProfileArguments
from kinetoscope.recording.profiler import Profiler

_MAGIC = "kinetoscope"
_USAGE = (
    "Usage: %%kinetoscope; %%kinetoscope runs/mine; %%kinetoscope --diagnose runs/mine; or the arguments of "
    'kinetoscope.profile, as in %%kinetoscope "runs/mine", diagnose=True.'
)


def load_ipython_extension(ipython: Any) -> None:
    """Add the magic ``%%kinetoscope``. Called by ``%load_ext kinetoscope``."""
    magic = partial(profile_cell, ipython)
    magic.__doc__ = profile_cell.__doc__  # pyright: ignore[reportAttributeAccessIssue] - for `%%kinetoscope?`
    ipython.register_magic_function(magic, "cell", _MAGIC)


def unload_ipython_extension(ipython: Any) -> None:
    """Remove the magic. Called by ``%unload_ext kinetoscope``."""
    ipython.magics_manager.magics["cell"].pop(_MAGIC, None)


def profile_cell(ipython: Any, line: str, cell: str) -> None:
    """Profile the training in a cell, whose code is not changed, and show the findings and the report.

        %%kinetoscope "runs/mine", diagnose=True
        for batch in loader:
            train(batch)

        %%kinetoscope --diagnose runs/mine

    After the magic come the arguments of `kinetoscope.profile`, or a folder, with ``--diagnose`` before or after it to
    record everything that findings use. Steps are detected as by `kinetoscope run`: by fetches from torch's DataLoaders
    and by steps of optimizers.
    """
    __tracebackhide__ = True  # IPython leaves these frames out when the cell raises
    profiling = _CellProfiling(_parse_line(line, ipython.user_ns))
    profiling.start()
    try:
        _run_cell(ipython, cell)
    except KeyboardInterrupt:
        profiling.stop()
        profiling.print_location()
        raise
    except BaseException:
        profiling.stop()
        profiling.show()
        raise
    profiling.stop()
    profiling.show()


def _parse_line(line: str, names: dict[str, Any]) -> ProfileArguments:
    """Return the arguments in the line of a magic; names in it are the notebook's."""
    tokens = line.split()
    if "--diagnose" in tokens:
        tokens.remove("--diagnose")
        rest = " ".join(tokens)
        line = f"{rest!r}, diagnose=True" if _is_folder(rest) else f"{rest}, diagnose=True".lstrip(", ")
    line = line.strip()
    if line.startswith("-"):
        raise SettingsError(f"After %%kinetoscope, there is no option {line.split()[0]}. {_USAGE}")
    if _is_folder(line):
        return ProfileArguments(line, quiet=True)
    try:
        call = ast.parse(f"ProfileArguments({line})", "<%%kinetoscope>", "eval")
    except SyntaxError as error:
        raise SettingsError(f"After %%kinetoscope, {line!r} cannot be read. {_USAGE}") from error

    def quiet_arguments(*arguments: Any, **options: Any) -> ProfileArguments:
        return ProfileArguments(*arguments, **({"quiet": True} | options))

    code = compile(call, "<%%kinetoscope>", "eval")
    return eval(code, {**names, "ProfileArguments": quiet_arguments})


def _is_folder(line: str) -> bool:
    """Return whether the line of a magic is a folder, and not arguments of Python's."""
    return bool(line) and not set(line) & set("\"'=,()")


class _CellProfiling:
    """Profiling of one cell."""

    def __init__(self, arguments: ProfileArguments) -> None:
        self._arguments = arguments
        self._profiler: Profiler | None = None
        self._training: Any = None
        self._reason = "the cell took no step of a torch optimizer"

    def start(self) -> None:
        """Start to watch for training runs."""
        if importlib.util.find_spec("torch") is None:
            self._reason = "torch is not installed"
            return
        import torch  # noqa: F401 - `autoinstrument` needs it loaded

        from kinetoscope.autoinstrument.instrumentation import AutoInstrumentation

        self._training = AutoInstrumentation(self._make_profiler, self._set_reason)
        self._training.watch()

    def _make_profiler(self, number: int, num_over: int) -> Profiler:
        """Return the profiler of the n-th training run of the cell. The first one is shown."""
        profiler = (
            self._arguments.make_profiler() if number == 1 else self._arguments.make_profiler(first_step=num_over)
        )
        self._profiler = self._profiler or profiler
        return profiler

    def _set_reason(self, reason: str) -> None:
        self._profiler, self._reason = None, reason

    def stop(self) -> None:
        """End the profiling, and stop to watch."""
        if self._training is not None:
            self._training.end()

    @property
    def _folder(self) -> Path | None:
        return None if self._profiler is None else self._profiler.driver.folder

    def print_location(self) -> None:
        """Print where the data was saved, without waiting for more, after Ctrl-C."""
        if self._folder is not None:
            print(
                f"Kinetoscope: recorded until then: kinetoscope.view({short_path(self._folder)!r})",
                file=sys.stderr,
            )

    def show(self) -> None:
        """Show the summary and the report below the cell, or print why that is not possible. Raise nothing."""
        folder, display = self._folder, sys.modules["IPython.display"].display
        if folder is None:
            print(f"Kinetoscope: nothing was recorded: {self._reason}.", file=sys.stderr)
            return
        try:
            report = kinetoscope.analyze(folder)
            display(report)
            display(kinetoscope.view(report))
        except Exception as error:  # for instance if it recorded nothing
            print(f"Kinetoscope: there is nothing to show: {error}", file=sys.stderr)


def _run_cell(ipython: Any, cell: str) -> None:
    """Run a cell as IPython does: the value of its last line is shown. Raises the errors of the cell."""
    __tracebackhide__ = True
    source = ipython.transform_cell(cell)
    name = ipython.compile.cache(source, ipython.execution_count, raw_code=cell)
    tree = ipython.transform_ast(ipython.compile.ast_parse(source, name))
    last = [tree.body.pop()] if tree.body and isinstance(tree.body[-1], ast.Expr) and not _is_silent(source) else []
    exec(ipython.compile(tree, name, "exec"), ipython.user_ns)
    if last:
        exec(ipython.compile(ast.Interactive(last), name, "single"), ipython.user_ns)


def _is_silent(source: str) -> bool:
    """Return whether a cell ends in a semicolon, with which IPython hides its result."""
    return source.rstrip().endswith(";")
