"""Runs programs as `python -c` does, each in a process of its own that has already imported the slow modules.

Importing torch takes two seconds of processor time, and the imports of a command a quarter of a second. So one process
imports them once, for all processes of a test run, and is forked for each program.

At the end of a program, Python and C++ destroy imported objects one by one: a third of a second for torch. Programs
skip that, unless their test passes ``finalizes``. The rest of Python's exit is the same: it waits for threads, calls
the functions that were registered with `atexit`, and flushes the output.
"""

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import io
import json
import os
import posix  # its fork is there where tests take away that of os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

COMMANDS = tuple(
    f"kinetoscope.cli.{verb}" for verb in ("info", "recover", "upload", "status", "merge", "convert", "check")
)
KINETOSCOPE_MODULES = ("importlib.metadata", "kinetoscope.api", *COMMANDS)
TORCH_COMPILE_MODULES = ("torch", "torch._dynamo", "torch._inductor.config")
"""torch with what it imports for the first optimizer, another second and a half."""
TORCH_MODULES = (*TORCH_COMPILE_MODULES, "kinetoscope.torch", "kinetoscope.sources.torch_profiler")
_BASES = (TORCH_COMPILE_MODULES, TORCH_COMPILE_MODULES[:1])
_FORK = "fork"
_MAX_START_S = 300
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9
_ENVIRONMENT = dict(os.environ)
_TEST_RUN = os.environ.get("PYTEST_PREPARED_BY") or os.environ.get("PYTEST_XDIST_TESTRUNUID")
_ON_INTERRUPT = signal.getsignal(signal.SIGINT)
_Variables = tuple[tuple[str, str], ...]
RUN_COMMAND = "from kinetoscope.cli import command\ncommand()"
S3_MODULES = (*KINETOSCOPE_MODULES, "s3fs")
"""Modules for S3. s3fs reads its settings when it is imported, so programs start with `READ_SETTINGS`."""
READ_SETTINGS = "from fsspec.config import conf, set_conf_env\nset_conf_env(conf)\n"


def run_program(program: str, *arguments: object, **where: Any) -> subprocess.CompletedProcess[str]:
    """Run a program in a process that has imported us, but has not used us. For ``where`` see `run_forked`."""
    return run_forked(KINETOSCOPE_MODULES, program, *arguments, **where)


def run_command(*arguments: object, **where: Any) -> subprocess.CompletedProcess[str]:
    """Run `kinetoscope` with these arguments."""
    return run_forked(KINETOSCOPE_MODULES, RUN_COMMAND, *arguments, **where)


def run_command_on_bytes(*arguments: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run `kinetoscope` with these arguments and a pipe as its standard input; return the bytes that it printed."""
    running = start_forked(KINETOSCOPE_MODULES, RUN_COMMAND, *arguments, stdin=stdin)
    done = running.wait()
    return subprocess.CompletedProcess(done.args, done.returncode, *running.printed)


def run_with_torch(program: str, *arguments: object, **where: Any) -> subprocess.CompletedProcess[str]:
    """Run a program in a process that has imported torch and us, but has used neither."""
    return run_forked(TORCH_MODULES, program, *arguments, **where)


def start_with_torch(program: str, *arguments: object, **where: Any) -> "Running":
    """As `run_with_torch`, but returns while the program runs."""
    return start_forked(TORCH_MODULES, program, *arguments, **where)


def run_forked(
    modules: tuple[str, ...],
    program: str,
    *arguments: object,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    imported_with: Mapping[str, str] | None = None,
    timeout_s: float = 120,
    finalizes: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. For the rest see `start_forked`."""
    where: dict[str, Any] = {"folder": folder, "environment": environment, "imported_with": imported_with}
    where["finalizes"] = finalizes
    return start_forked(modules, program, *arguments, **where).wait(timeout_s)


def start_forked(
    modules: tuple[str, ...],
    program: str,
    *arguments: object,
    folder: Path | None = None,
    environment: Mapping[str, str] | None = None,
    imported_with: Mapping[str, str] | None = None,
    stdin: bytes | None = None,
    finalizes: bool = False,
) -> "Running":
    """Start a program in the folder and the environment of the caller if no others are given. ``stdin`` comes through a
    pipe; None is no standard input. With ``finalizes`` Python is finalized when the program has ended.

    Environment variables that modules read when they are imported are those with which the tests were started, whatever
    test comes first, and those of ``imported_with``.

    The output of a killed or crashed program is returned, and the next program still works. Programs that run at the
    same time have different parents.
    """
    request: dict[str, Any] = {"program": program, "arguments": list(map(str, arguments)), "finalizes": finalizes}
    request["folder"] = str(folder or Path.cwd())
    request["environment"] = dict(os.environ if environment is None else environment)
    variables = tuple(sorted((imported_with or {}).items()))
    idle = _idle.setdefault((modules, variables), [])
    connection = idle.pop() if idle else _another(_prepared(modules, variables))
    return Running(connection, request, idle, stdin)


def run_as_this_process(modules: tuple[str, ...], program: str) -> int:
    """Run a program with the standard streams, the folder and the environment of this process; return its status."""
    request = {"program": program, "arguments": [], "finalizes": False}
    request |= {"folder": os.getcwd(), "environment": dict(os.environ)}
    connection = _prepared(modules, ())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # that is for the program
    socket.send_fds(connection, [json.dumps(request).encode()], [1, 2, 0])
    connection.recv(100)  # its pid
    return int(connection.recv(100))


class Running:
    """A program that was started in a prepared process. `wait` for it, also after `kill`."""

    printed: tuple[bytes, bytes]
    """Output of the program, known after `wait`."""

    def __init__(
        self, connection: socket.socket, request: dict[str, Any], idle: list[socket.socket], stdin: bytes | None
    ) -> None:
        self._connection, self._request, self._idle = connection, request, idle
        self._output, self._errors = (tempfile.TemporaryFile() for _ in range(2))  # noqa: SIM115 - see `wait`
        with contextlib.ExitStack() as stack:
            files = [self._output.fileno(), self._errors.fileno(), *_piped(stdin, stack)]
            socket.send_fds(connection, [json.dumps(request).encode()], files)
            self.pid = int(connection.recv(100))
        self._done: subprocess.CompletedProcess[str] | None = None

    def has_ended(self) -> bool:
        return self._done is not None or bool(select.select([self._connection], [], [], 0)[0])

    def kill(self) -> None:
        if not self.has_ended():
            with contextlib.suppress(ProcessLookupError):  # it has ended since
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout_s: float = 120) -> subprocess.CompletedProcess[str]:
        """Return its status and its output, also if it was killed or crashed. Kill it when the time is up."""
        if self._done is not None:
            return self._done
        is_late = not select.select([self._connection], [], [], timeout_s)[0]
        if is_late:
            self.kill()
        status = int(self._connection.recv(100))
        self._idle.append(self._connection)
        with self._output as output, self._errors as errors:
            output.seek(0)
            errors.seek(0)
            self.printed = output.read(), errors.read()
        texts = [io.StringIO(text.decode(), newline=None).read() for text in self.printed]
        self._done = subprocess.CompletedProcess(
            [self._request["program"], *self._request["arguments"]], status, *texts
        )
        if is_late:
            raise TimeoutError(f"The program did not end within {timeout_s} s. Its output: {texts}")
        return self._done


def _piped(stdin: bytes | None, stack: contextlib.ExitStack) -> list[int]:
    """Return a pipe's end from which the text can be read, until ``stack`` is left; none for None."""
    if stdin is None:
        return []
    read_end, write_end = os.pipe()
    stack.callback(os.close, read_end)
    threading.Thread(target=_write_all, args=(write_end, stdin), daemon=True).start()
    return [read_end]


def _write_all(write_end: int, text: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), open(write_end, "wb") as pipe:
        pipe.write(text)


_idle: dict[tuple[tuple[str, ...], _Variables], list[socket.socket]] = {}
"""Connections to prepared processes that run no program."""


def _another(prepared: socket.socket) -> socket.socket:
    """Return the connection to a fork of a prepared process, which runs programs of its own."""
    client, server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    socket.send_fds(prepared, [_FORK.encode()], [server.fileno()])
    server.close()
    atexit.register(client.close)
    return client


@functools.cache
def _prepared(modules: tuple[str, ...], variables: _Variables) -> socket.socket:
    """Return the connection to a process that has imported these, and runs programs for us alone. All processes of a
    test run share these imports, if the system can do that."""
    if _TEST_RUN and sys.platform == "linux":
        return _shared(modules, variables)
    client, server = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    _start(server, modules, variables)
    server.close()
    atexit.register(client.close)
    return client


def _start(server: socket.socket, modules: tuple[str, ...], variables: _Variables) -> None:
    """Start a process that imports the modules, and serve its end of a connection, or all who connect to it. What is in
    `_BASES` is imported once for all such processes."""
    for base in _BASES:
        if modules[: len(base)] == base != modules:
            message = " ".join([_FORK, *modules[len(base) :]]).encode()
            socket.send_fds(_prepared(base, variables), [message], [server.fileno()])
            return
    command = [sys.executable, __file__, str(server.fileno()), *modules]
    environment = {**_ENVIRONMENT, **dict(variables)}
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[server.fileno()]
    )
    if server.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        process.wait()
    else:
        atexit.register(process.wait)


def _shared(modules: tuple[str, ...], variables: _Variables) -> socket.socket:
    """Return the connection to a fork, for us alone, of the process that has imported the modules for all processes of
    this test run with the same environment. Who comes first starts that."""
    own = {name: value for name, value in _ENVIRONMENT.items() if not name.startswith("PYTEST_")}
    what = repr((modules, variables, sys.executable, __file__, sorted(own.items())))
    address = f"\0kinetoscope {_TEST_RUN} {zlib.crc32(what.encode())}"  # in no file system
    until = time.monotonic() + _MAX_START_S
    while time.monotonic() < until:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with contextlib.suppress(ConnectionError):
            client.connect(address)
            if client.recv(100):
                atexit.register(client.close)
                return client
        client.close()
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as server:
            server.bind(address)  # only one process can
            server.listen(100)
            _start(server, modules, variables)
        time.sleep(0.01)
    raise TimeoutError(f"No process imports {modules}.")


def _end_with_parent() -> None:
    """End this process with the test run, even if that is interrupted or killed."""
    with contextlib.suppress(AttributeError):  # no Linux
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, _SIGKILL)


def _import_and_serve(connection: socket.socket, modules: list[str]) -> None:
    is_shared = bool(connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    if not is_shared:
        _end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the programs, which end by themselves
    _import(modules)
    (_serve_all if is_shared else _serve)(connection)


def _serve_all(listening: socket.socket) -> None:
    """Fork a process for each connection. Exit when all of these have ended.

    In a process that has run a program, return at its end.
    """
    num_forks = 0
    while True:
        if select.select([listening], [], [], 1.0)[0]:
            connection, _ = listening.accept()
            if posix.fork() == 0:
                _end_with_parent()
                listening.close()
                connection.send(b"ready")
                _serve(connection)
                return
            connection.close()
            num_forks += 1
        while num_forks and os.waitpid(-1, os.WNOHANG)[0]:
            num_forks -= 1
        if not num_forks:
            os._exit(0)


def _serve(connection: socket.socket) -> None:
    """Run a program for each request, and send its pid and its exit code. Exit when the connection is closed.

    In a process that has run a program, return at its end.
    """
    while True:
        message, files, _, _ = socket.recv_fds(connection, 1 << 20, 3)
        if not message:
            os._exit(0)
        if message.startswith(_FORK.encode()):
            if posix.fork() == 0:
                connection.close()
                _import_and_serve(socket.socket(fileno=files[0]), message.decode().split()[1:])
                return
            os.close(files[0])
            continue
        pid = posix.fork()
        if pid == 0:
            _end_with_parent()
            connection.close()
            _become(files, **json.loads(message))
            return
        for file in files:
            os.close(file)
        connection.send(str(pid).encode())
        connection.send(str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())


def _become(
    files: list[int],
    program: str,
    arguments: list[str],
    folder: str,
    environment: dict[str, str],
    finalizes: bool,
) -> None:
    """Run a program in this process. An exception ends the process, as with `python -c`."""
    for number, file in zip((1, 2, 0), files, strict=False):
        os.dup2(file, number)
        os.close(file)
    signal.signal(signal.SIGINT, _ON_INTERRUPT)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    tempfile.tempdir = None  # look it up again: torch has set it when it was imported
    sys.argv, sys.path[0] = ["-c", *arguments], ""
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    status = 0
    try:
        exec(compile(program, "<string>", "exec"), vars(main))
    except SystemExit as end:
        if finalizes or not isinstance(end.code, int | None):
            raise
        status = int(end.code or 0)
    if not finalizes:
        _end_soon(status)


def _end_soon(status: int) -> None:
    """End this process as Python does, without the destruction of objects; return if the output cannot be written."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(Exception):
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
        os._exit(status)


def _import(modules: list[str]) -> None:
    gc.disable()  # what is imported stays
    for module in modules:
        with contextlib.suppress(ImportError):  # the program reports it better
            importlib.import_module(module)
    gc.enable()
    gc.freeze()  # or the first collection of each program scans all objects of torch, a second of CPU time


def _main() -> None:
    sys.path[0] = str(Path(__file__).parents[1])
    connection = socket.socket(fileno=int(sys.argv[1]))
    if connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN) and posix.fork():
        os._exit(0)  # the fork exits with its last user
    _import_and_serve(connection, sys.argv[2:])


if __name__ == "__main__":
    _main()
