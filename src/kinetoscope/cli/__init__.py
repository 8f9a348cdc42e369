"""The command ``kinetoscope``: one file per verb, imported when the verb is called."""
# PYTHON_ARGCOMPLETE_OK: argcomplete looks for this word.

import argparse
import atexit
import gc
import importlib
import io
import keyword
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import NoReturn

from kinetoscope.core.paths.atomic_file import abandon_partials
from kinetoscope.core.text.wording import format_error_line, sanitize, sanitize_lines
from kinetoscope.errors import KinetoscopeError, NativeExtensionError, SettingsError

# Commands by task. The module of each has add_arguments(parser) and run(arguments) -> exit code.
_TASKS = {
    "record": {
        "run": "run a command and record its training steps, without code changes",
        "record": "record steps of a running job, on all ranks",
        "recover": "write traces of the unsaved data of a killed run",
        "upload": "upload the files that a run could not upload",
    },
    "look": {
        "status": "show step, phase and memory of each rank; stragglers, killed and hung ranks",
        "summary": "show findings on a run, and where its time goes",
        "explain": "explain a kind of finding, and how to fix it",
        "report": "write findings and the timeline of all ranks to one HTML file",
        "view": "show runs and reports in a browser, and open traces in Perfetto",
        "info": "show ranks, clocks, durations, batches, categories and sizes of traces",
    },
    "compare": {
        "diff": "show regressions and improvements between two runs",
        "whatif": "estimate the step time with something faster or removed",
        "try": "measure fixes on your training run, without code changes",
    },
    "files": {
        "merge": "merge traces of ranks and profiling windows into one, on one clock",
        "convert": "convert traces to another format",
        "check": "validate traces, and repair them",
    },
}
_VERBS = {verb: what for verbs in _TASKS.values() for verb, what in verbs.items()}
_RECORDING = '  (or in code: with kinetoscope.profile("runs/{time}") as profiler)'


def command() -> NoReturn:
    """Run the command and exit.

    Before and after its work, Ctrl-C ends the process without a message.
    """
    arguments = sys.argv[1:]
    if "_ARGCOMPLETE" in os.environ:  # a shell requests completions
        _complete()
    ends: list[int] = []
    atexit.register(_exit_fast, ends)  # the first one registered is called last
    with _use_default_ctrl_c(), _block_ctrl_c_in_threads(), _disable_gc():
        if arguments and arguments[0] in _VERBS:
            importlib.import_module(_find_module(arguments[0]))
    status = main(arguments)
    with _use_default_ctrl_c():
        ends.append(status)
        sys.exit(status)


def _exit_fast(ends: list[int]) -> None:
    """End the process before Python takes apart what was imported, which takes a tenth of a second for polars.

    With a debugger or coverage, Python ends it. So it does if a successful command could not write its output, and
    reports that. A command that failed has reported the reason and keeps its exit code, which Python 3.14 would change.
    """
    if not ends or sys.gettrace() is not None or sys.getprofile() is not None:
        return
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):
            if ends[0] == 0:
                return
    os._exit(ends[0] & 0xFF)


@contextmanager
def _disable_gc() -> Iterator[None]:
    """Switch garbage collection off, then exclude the objects of imports from it: they live until the end."""
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


@contextmanager
def _use_default_ctrl_c() -> Iterator[None]:
    """Restore the system's handling of Ctrl-C: end the process at once."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # background jobs of a script ignore it
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, before)


@contextmanager
def _block_ctrl_c_in_threads() -> Iterator[None]:
    """Block Ctrl-C in threads that libraries such as polars start at import, so that `run_parallel` receives it.

    A press meanwhile counts at the end: polars installs its own handler, so the earlier one is restored.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if handler is not None:  # None: not set by Python
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb. Return 0 on success, 1 after an error on stderr, 2 for wrong usage."""
    _allow_any_path()
    arguments_given = list(sys.argv[1:] if argv is None else argv)
    name = " ".join(["kinetoscope", *(verb for verb in arguments_given[:1] if verb in _VERBS)])
    try:
        return _run(arguments_given)
    except BrokenPipeError:  # the reader of the output has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KinetoscopeError as error:
        _print_to_stderr(format_error_line(error))
        return 2 if isinstance(error, SettingsError | NativeExtensionError) else 1
    except OSError as error:
        _print_to_stderr(format_error_line(error))
        return 1
    except KeyboardInterrupt as interrupt:
        return _exit_interrupted(f"{name}: interrupted. {_describe_written(interrupt)}")


def _print_to_stderr(text: str) -> None:
    """Print a text to stderr unless it is closed."""
    with suppress(OSError, ValueError):
        print(text, file=sys.stderr, flush=True)


def _describe_written(interrupt: KeyboardInterrupt) -> str:
    """Return a sentence on the files that are complete after an interrupt."""
    written: list[Path] | None = getattr(interrupt, "written", None)
    if written:
        return f"Written: {sanitize_lines(', '.join(map(str, written)))}. No incomplete file is left."
    return (
        "No file was written, and no incomplete file is left." if written is not None else "No incomplete file is left."
    )


def _exit_interrupted(sentence: str) -> NoReturn:
    """End the process at once after Ctrl-C: its threads may be in a library that cannot be interrupted."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    abandon_partials()
    _print_to_stderr(sentence)
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(130)


def _format_version() -> str:
    """Return the version, and whether the native extension is in use."""
    from kinetoscope import __version__
    from kinetoscope.native import why_not_loaded, why_not_recorded

    if reason := why_not_loaded():
        return f"kinetoscope {__version__} (without the native extension). {reason}"
    return f"kinetoscope {__version__} ({'native, without the recorder' if why_not_recorded() else 'native'})"


class _Parser(argparse.ArgumentParser):
    """A parser with the error format of all commands, which suggests similar options."""

    def error(self, message: str) -> NoReturn:
        """Print an error with a remedy, and exit with 2."""
        message, _, remedy = message.partition("; ")
        hint = self._suggest(message) or (
            f"{remedy[:1].upper()}{remedy[1:]}." if remedy else f"See {self.prog} --help."
        )
        _print_to_stderr(format_error_line(f"{message[:1].upper()}{message[1:]}. {hint}"))
        self.exit(2)

    def _suggest(self, message: str) -> str:
        """Return a question that names the most similar option; "" if none is similar."""
        unknown = message.partition("unrecognized arguments: ")[2].split(" ")
        known = [option for action in self._actions for option in action.option_strings]
        close = [get_close_matches(word.partition("=")[0], known, 1) for word in unknown if word.startswith("-")]
        return f"Did you mean {close[0][0]}?" if close and close[0] else ""


def _allow_any_path() -> None:
    """Print paths that are not valid UTF-8 byte by byte, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="surrogateescape")


def _run(argv: list[str]) -> int:
    """Run the command of the first argument and return its exit code."""
    verb, rest = (argv[0], argv[1:]) if argv else ("help", [])
    if verb in ("help", "-h", "--help"):
        return _print_help(rest)
    if verb in ("version", "-V", "--version"):
        print(_format_version())
        return 0
    if verb not in _VERBS:
        raise SettingsError(_describe_unknown(verb))
    parser, run = _build_parser(verb)
    return run(parser.parse_args(rest))


def _print_help(verbs: Sequence[str]) -> int:
    """Print the help of a verb, or the overview."""
    if not verbs or verbs[0] not in _VERBS:
        if verbs:
            raise SettingsError(_describe_unknown(verbs[0]))
        print(_format_overview())
        return 0
    parser, _ = _build_parser(verbs[0])
    parser.print_help()
    return 0


def _describe_unknown(verb: str) -> str:
    """Return an error message for an unknown command, with a similar one."""
    close = get_close_matches(verb, _VERBS, 1)
    hint = f"Did you mean {close[0]}?" if close else "Kinetoscope help lists the commands."
    kind = "option" if verb.startswith("-") else "command"
    return f"Unknown {kind} {sanitize(verb)}. {hint}".replace("Kinetoscope help", "`kinetoscope help`")


def _build_parser(verb: str) -> tuple[argparse.ArgumentParser, Callable[[argparse.Namespace], int]]:
    """Return the parser of a verb's arguments, and the function that runs it."""
    parser = _Parser(
        prog=f"kinetoscope {verb}",
        description=f"{_VERBS[verb][0].upper()}{_VERBS[verb][1:]}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module = importlib.import_module(_find_module(verb))
    module.add_arguments(parser)
    return parser, module.run


def _find_module(verb: str) -> str:
    """Return the name of the module of a command."""
    return f"kinetoscope.cli.{verb}{'_' if keyword.iskeyword(verb) else ''}"


def _format_overview() -> str:
    """Return the verbs by task."""
    lines = [
        "Kinetoscope finds what slows a PyTorch training run down: the rank, the line, and the",
        "milliseconds per step that a fix saves.",
    ]
    width = max(map(len, _VERBS))
    for task, verbs in _TASKS.items():
        lines += ["", f"{task}:", *([_RECORDING] if task == "record" else [])]
        lines += [f"  {verb:{width}}  {what}" for verb, what in verbs.items()]
    lines += ["", "Usage: kinetoscope COMMAND [PATH...] [OPTION...]"]
    return "\n".join([*lines, "`kinetoscope help COMMAND` shows its arguments and examples; -V shows the version."])


def _complete() -> None:
    """Print completions for a shell and exit; return if argcomplete is not installed."""
    try:
        import argcomplete
    except ImportError:
        return
    parser = argparse.ArgumentParser(prog="kinetoscope")
    parser.add_argument("--version", action="store_true")
    verbs = parser.add_subparsers()
    words = os.environ.get("COMP_LINE", "").split()
    for verb, what in _VERBS.items():
        verb_parser = verbs.add_parser(verb, help=what)
        if verb in words[1:2]:
            importlib.import_module(_find_module(verb)).add_arguments(verb_parser)
    argcomplete.autocomplete(parser)
