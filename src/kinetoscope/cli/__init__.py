"""The command ``kinetoscope``: one file per verb, imported when the verb is called."""
# PYTHON_ARGCOMPLETE_OK: argcomplete looks for this word.

import argparse
import atexit
import gc
import importlib
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from kinetoscope.errors import KinetoscopeError, SettingsError
from kinetoscope.texts.wording import printable_lines, shown
from kinetoscope.writing.atomic_file import abandon_partials

# Each verb and what it does, by task. Its module has add_arguments(parser) and run(arguments) -> exit code.
_TASKS = {
    "record": {
        "run": "run any command, and record the training in it, whose code stays as it is",
        "record": "record some steps of a job that runs, on all its ranks",
        "recover": "make traces of what a killed run did not save",
        "upload": "upload what a run could not upload, and confirm it",
    },
    "look": {
        "status": "show what each rank of a run does now: step, phase, memory; who is behind, killed or hangs",
        "summary": "show where the time of a run went, and what would shorten it",
        "explain": "say what a kind of finding is, and what to change",
        "report": "write what was found, and all ranks on one timeline, into one HTML file that people can look at",
        "view": "show the runs in a folder in a browser, with their reports, and open traces in Perfetto",
        "info": "show what is in traces: ranks, clocks, times, batches, categories, sizes",
    },
    "compare": {
        "diff": "show what got slower or larger from one run to another",
        "whatif": "show how long a step would take with something changed",
    },
    "files": {
        "merge": "merge the traces of many ranks and cycles into one, on one clock",
        "convert": "write traces in another format",
        "check": "show what is wrong with traces, and repair them",
    },
}
_VERBS = {verb: what for verbs in _TASKS.values() for verb, what in verbs.items()}
_RECORDING = '  (in your training: with kinetoscope.profile("runs/{time}") as profiler)'


def command() -> NoReturn:
    """Runs the command and exits. Before and after the work, Ctrl-C just ends the process."""
    arguments = sys.argv[1:]
    if "_ARGCOMPLETE" in os.environ:  # a shell asks what could come next
        _complete()
    ends: list[int] = []
    atexit.register(_end_soon, ends)  # what is registered first is called last
    with _ended_by_ctrl_c(), _kept_from_new_threads(), _without_garbage_collection():
        if arguments and arguments[0] in _VERBS:
            importlib.import_module(f"kinetoscope.cli.{arguments[0]}")
    status = main(arguments)
    with _ended_by_ctrl_c():
        ends.append(status)
        sys.exit(status)


def _end_soon(ends: list[int]) -> None:
    """Ends the process before Python takes apart what was imported, which takes a tenth of a second for polars. With
    a debugger or coverage, or if what was printed cannot be written, Python ends it and reports that."""
    if ends and sys.gettrace() is None and sys.getprofile() is None:
        with suppress(OSError, ValueError):
            for stream in filter(None, (sys.stdout, sys.stderr)):
                stream.flush()
            os._exit(ends[0] & 0xFF)


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """What is imported stays, so no garbage collection looks through it."""
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()


@contextmanager
def _ended_by_ctrl_c() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # it is ignored in the background of a script
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGINT, before)


@contextmanager
def _kept_from_new_threads() -> Iterator[None]:
    """Ctrl-C never goes to the threads that libraries, such as polars, start as they are imported: `work_on_each`
    waits for it on a thread of its own. If it is pressed meanwhile, it counts at the end, since the handler that was
    there is set again: polars sets its own."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    handler = signal.getsignal(signal.SIGINT)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if handler is not None:  # None is one that Python did not set
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one verb. Returns 0 if all went well, 1 with a line on stderr if not, 2 for wrong usage."""
    _print_any_path()
    arguments_given = list(sys.argv[1:] if argv is None else argv)
    name = " ".join(["kinetoscope", *(verb for verb in arguments_given[:1] if verb in _VERBS)])
    try:
        return _run(arguments_given)
    except BrokenPipeError:  # the reader of our output has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KinetoscopeError as error:
        _complain(f"{name}: {printable_lines(error)}")
        return 2 if isinstance(error, SettingsError) else 1
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        _complain(f"{name}: Cannot read or write{printable_lines(where)}: {error.strerror}.")
        return 1
    except KeyboardInterrupt as interrupt:
        return _end_now(f"{name}: interrupted. {_written(interrupt)}")


def _complain(sentence: str) -> None:
    """Prints a sentence on stderr, if there is somebody to read it."""
    with suppress(OSError, ValueError):
        print(sentence, file=sys.stderr, flush=True)


def _written(interrupt: KeyboardInterrupt) -> str:
    written: list[Path] | None = getattr(interrupt, "written", None)
    if written:
        return f"Written: {printable_lines(', '.join(map(str, written)))}. No incomplete file is left."
    return (
        "No file was written, and no incomplete file is left." if written is not None else "No incomplete file is left."
    )


def _end_now(sentence: str) -> NoReturn:
    """Ends the process after Ctrl-C at once, since its threads may be in a library that cannot be interrupted."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    abandon_partials()
    _complain(sentence)
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(130)


class _Version(argparse.Action):
    """Prints the version and exits. The version is looked up only then."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(nargs=0, **settings)

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from kinetoscope import __version__
        from kinetoscope.native import why_pure, why_pure_recorder

        if all_of_it := why_pure():
            used = f"in Python only: {all_of_it}"
        elif recorder := why_pure_recorder():
            used = f"native, but for the recorder: {recorder}"
        else:
            used = "native"
        print(f"kinetoscope {__version__} ({used})")
        parser.exit()


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are as printable as all others, and name the option that was meant."""

    def error(self, message: str) -> NoReturn:
        super().error(printable_lines(message + self._meant(message)))

    def _meant(self, message: str) -> str:
        unknown = message.partition("unrecognized arguments: ")[2].split(" ")
        known = [option for action in self._actions for option in action.option_strings]
        close = [get_close_matches(word.partition("=")[0], known, 1) for word in unknown if word.startswith("-")]
        return f"; did you mean {close[0][0]}?" if close and close[0] else ""


def _print_any_path() -> None:
    """Lets paths that are not valid text be printed byte by byte."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.errors == "strict":
            stream.reconfigure(errors="surrogateescape")


def _run(argv: list[str]) -> int:
    verb = argv[0] if argv else None
    if verb in _VERBS:
        parser, run = _verb_parser(verb)
        return run(parser.parse_args(argv[1:]))
    if verb is not None and not verb.startswith("-"):
        raise SettingsError(_unknown(verb))
    _parser().parse_args(argv)
    print(_overview())
    return 2


def _unknown(verb: str) -> str:
    close = get_close_matches(verb, _VERBS, 1)
    meant = f"Did you mean {close[0]}?" if close else f"There are {', '.join(_VERBS)}."
    return f"There is no command {shown(verb)}. {meant}"


def _verb_parser(verb: str) -> tuple[argparse.ArgumentParser, Callable[[argparse.Namespace], int]]:
    """The parser of a verb's arguments, and what does its work."""
    parser = _Parser(
        prog=f"kinetoscope {verb}",
        description=f"{verb}: {_VERBS[verb]}.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module = importlib.import_module(f"kinetoscope.cli.{verb}")
    module.add_arguments(parser)
    return parser, module.run


def _parser() -> argparse.ArgumentParser:
    """The parser for what is said without a verb."""
    parser = _Parser(
        prog="kinetoscope",
        usage="kinetoscope VERB PATH... [OPTION...]",
        description=_overview(),
        epilog="kinetoscope VERB --help shows the arguments of a verb, with examples.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, help="show the version, and whether the C code is in use")
    return parser


def _overview() -> str:
    """All verbs, by task."""
    lines = ["A profiler for training runs: every rank, one clock, one trace that every viewer opens."]
    width = max(map(len, _VERBS))
    for task, verbs in _TASKS.items():
        lines += ["", f"{task}:", *([_RECORDING] if task == "record" else [])]
        lines += [f"  {verb:{width}}  {what}" for verb, what in verbs.items()]
    return "\n".join([*lines, "", "kinetoscope VERB --help shows the arguments of a verb, with examples."])


def _complete() -> None:
    """Answers a shell that asks what could come next, and exits; if argcomplete is not installed, returns."""
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
            importlib.import_module(f"kinetoscope.cli.{verb}").add_arguments(verb_parser)
    argcomplete.autocomplete(parser)
