"""Programs on Linux that find it as macOS or Windows would be: what those do not have is taken away before they start.

Nothing here ran on a Mac or on Windows. What a system has and Linux has not, or does in another way under the same
name, is not seen by these tests.
"""

import atexit
import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from support.fork_server import KINETOSCOPE_MODULES, RUN_COMMAND, TORCH_COMPILE_MODULES, run_forked

_TIMEOUT_S = 300
# Python runs this as it starts. Libraries that choose their way into the system as they are imported come first.
_BEGIN = """
import errno, importlib, io, mmap, os, resource, select, signal, socket, sys, sysconfig, time, types
import psutil

sysconfig.get_config_vars()

def take_away(module, *names):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)

def names_in(module, *beginnings):
    return [name for name in dir(module) if name.startswith(beginnings)]

def is_hidden(path):
    try:
        parts = os.fsdecode(path).split("/")
    except TypeError:  # a descriptor
        return False
    return parts[0] == "" and parts[1:2] in (["proc"], ["sys"])

def is_asked_by_a_library():  # which has other ways on other systems
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] in ("psutil", "torch", "polars"):
            return True
        frame = frame.f_back
    return False

def refuse_hidden(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and is_hidden(arguments[0]) and not is_asked_by_a_library():
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), arguments[0])

def without_hidden(function):
    def called(path, *arguments, **settings):
        if is_hidden(path) and not is_asked_by_a_library():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return function(path, *arguments, **settings)
    for functions in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
        if function in functions:
            functions.add(called)
    return called

if hasattr(os, "process_cpu_count"):  # it needs sched_getaffinity; CPython takes this one where that is missing
    os.process_cpu_count = os.cpu_count
sys.addaudithook(refuse_hidden)
for name in ("stat", "lstat", "readlink", "access"):
    setattr(os, name, without_hidden(getattr(os, name)))
"""

MACOS = (
    _BEGIN
    + """
import fcntl

take_away(os, *names_in(os, "sched_", "posix_fa", "CLONE_", "EFD_", "MFD_", "SPLICE_", "GRND_", "XATTR_", "POSIX_FADV"))
take_away(os, "fdatasync", "pipe2", "memfd_create", "eventfd", "copy_file_range", "splice", "getrandom", "pidfd_open")
if hasattr(sys.modules.get("subprocess"), "_CAN_USE_PIDFD_OPEN"):  # 3.15 decides as it is imported
    sys.modules["subprocess"]._CAN_USE_PIDFD_OPEN = False
take_away(os, "getxattr", "setxattr", "listxattr", "removexattr", "setresuid", "getresuid", "setresgid", "getresgid")
take_away(os, "O_TMPFILE", "O_PATH", "O_DIRECT", "O_NOATIME", "O_LARGEFILE", "O_RSYNC", "unshare", "setns")
take_away(fcntl, *names_in(fcntl, "F_OFD_", "F_SEAL_", "F_ADD_", "F_GET_SEALS", "F_SETPIPE", "F_GETPIPE", "F_SETSIG"))
take_away(fcntl, *names_in(fcntl, "F_GETSIG", "F_SETLEASE", "F_GETLEASE", "F_NOTIFY", "DN_"))
take_away(resource, "prlimit", "RUSAGE_THREAD", "RLIMIT_MSGQUEUE", "RLIMIT_NICE", "RLIMIT_RTPRIO", "RLIMIT_SIGPENDING")
take_away(signal, "sigwaitinfo", "sigtimedwait", "SIGPOLL", "SIGPWR", "SIGRTMAX", "SIGRTMIN", "pidfd_send_signal")
take_away(select, *names_in(select, "epoll", "EPOLL"))
take_away(time, "CLOCK_BOOTTIME", "CLOCK_TAI", "pthread_getcpuclockid")
take_away(mmap, *names_in(mmap, "MAP_POPULATE", "MAP_STACK", "MAP_DENYWRITE", "MADV_DO", "MADV_HUGE", "MADV_REMOVE"))
take_away(socket, *names_in(socket, "AF_NETLINK", "AF_VSOCK", "SO_PEERCRED", "SOCK_CLOEXEC", "SOCK_NONBLOCK"))

proxies = sys.modules["_scproxy"] = types.ModuleType("_scproxy")  # the standard library imports it on macOS
proxies._get_proxies = proxies._get_proxy_settings = dict
import ctypes.util  # Linux distributions leave out the part of it that it imports on macOS
sys.platform = "darwin"
"""
)

# os.uname stays, which polars needs on Linux.
WINDOWS = (
    _BEGIN
    + """
# These have other ways on Windows.
import asyncio, multiprocessing.connection, multiprocessing.reduction, rich.console, shutil, subprocess
if os.environ.get("WITH_TORCH"):
    import torch
else:
    sys.modules["torch"] = None

for name in ("fcntl", "resource", "pwd", "grp", "termios", "pty", "syslog"):
    sys.modules[name] = None

take_away(os, "fork", "forkpty", "register_at_fork", "mkfifo", "mknod", "nice", "pread", "preadv", "pwrite", "pwritev")
take_away(os, "getuid", "geteuid", "getgid", "getegid", "getpgid", "getsid", "setsid", "killpg", "chown", "fchown")
take_away(os, "sysconf", "statvfs", "fstatvfs", "fdatasync", *names_in(os, "posix_", "sched_"))
take_away(os, "O_NOFOLLOW", "O_DIRECTORY", "O_NONBLOCK", "O_CLOEXEC", "O_NOCTTY", "O_SYNC", "pipe2", "getpriority")
take_away(signal, "pthread_sigmask", "pthread_kill", "sigwait", "sigpending", "setitimer", "alarm", "siginterrupt")
take_away(signal, "SIGKILL", "SIGUSR1", "SIGUSR2", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGCHLD", "SIGPIPE")
take_away(select, "poll", *names_in(select, "epoll", "EPOLL"))
take_away(socket, "AF_UNIX")
take_away(time, *names_in(time, "CLOCK_", "clock_get", "clock_set", "pthread_"))
for functions in (os.supports_dir_fd, os.supports_fd, os.supports_follow_symlinks):
    functions.clear()
importlib.reload(shutil)  # it chooses its functions by os.supports_dir_fd
subprocess._USE_POSIX_SPAWN = False
sys.platform = "win32"
"""
)


class EmulatedSystem:
    """Runs Python in ``folder`` as on another system: commands of ours, and programs.

    Each runs in a process of its own, in which all was taken away before anything of ours was imported; those that are
    not ``new`` are forked after that.
    """

    def __init__(self, system: str, folder: Path, **environment: str) -> None:
        self._variables = {"PYTHONPATH": _folder_with(system), **environment}
        self._folder = folder

    def command(self, *arguments: object, new: bool = False) -> subprocess.CompletedProcess[str]:
        """Run one of our commands to its end."""
        if new:
            return self._run_new("-m", "kinetoscope", *arguments)
        return self._run((*KINETOSCOPE_MODULES, "polars"), RUN_COMMAND, arguments)

    def program(self, text: str, *arguments: object, new: bool = False) -> subprocess.CompletedProcess[str]:
        """Run a program to its end."""
        return (
            self._run_new("-c", text, *arguments)
            if new
            else self._run((*KINETOSCOPE_MODULES, "polars"), text, arguments)
        )

    def program_with_torch(self, text: str) -> subprocess.CompletedProcess[str]:
        """Run a program to its end that has imported torch before anything was taken away."""
        return self._run(TORCH_COMPILE_MODULES, text, (), WITH_TORCH="1")

    def _run(
        self, modules: tuple[str, ...], text: str, arguments: Sequence[object], **more: str
    ) -> subprocess.CompletedProcess[str]:
        variables = {**self._variables, **more}
        environment = {**os.environ, **variables}
        where = {"folder": self._folder, "environment": environment, "imported_with": variables}
        return run_forked(modules, text, *arguments, **where, timeout_s=_TIMEOUT_S)

    def _run_new(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *map(str, arguments)]
        where = {"cwd": self._folder, "env": {**os.environ, **self._variables}}
        return subprocess.run(command, capture_output=True, text=True, **where, timeout=_TIMEOUT_S)


@functools.cache
def _folder_with(system: str) -> str:
    """Return a folder from which Python takes ``system`` away as it starts; there until the tests end."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    Path(folder.name, "sitecustomize.py").write_text(system)
    return folder.name
