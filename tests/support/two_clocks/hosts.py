"""Two ranks whose clocks differ, on one machine: with a time namespace or libfaketime, and a slow network between them.

Nothing outside the machine is touched. If this user or this kernel cannot do it, `unavailable` returns the reason.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from support.fork_server import Running, start_forked, start_with_torch
from support.free_ports import free_port

HOURS_AHEAD = 2
_IMPORTED = ("torch", "kinetoscope.api")
_FOLDER = Path(__file__).parent
_RANK = (_FOLDER / "rank.py").read_text()
_FAKETIME = [f"/usr/lib/{kind}-linux-gnu/faketime/libfaketimeMT.so.1" for kind in ("x86_64", "aarch64")]

IN_A_NETWORK_NAMESPACE = ["unshare", "--net"]
IN_A_NETWORK = ["ip", "netns", "exec"]
IN_A_TIME_NAMESPACE = ["unshare", "--time", "--monotonic", str(3600 * HOURS_AHEAD)]
TRUE_IN_NAMESPACE = str(-3600 * HOURS_AHEAD * 10**9)


def faketime(settings: str) -> list[str]:
    """Return a command under libfaketime: ``+3h x1.0001`` is three hours ahead and 100 ppm too fast."""
    library = next((path for path in _FAKETIME if os.path.exists(path)), "")
    return ["env", f"LD_PRELOAD={library}", f"FAKETIME={settings}"]


def unavailable(*commands: list[str]) -> str:
    """Return the reason why one of ``commands`` cannot run another command here; empty if all can."""
    for command in commands:
        if "LD_PRELOAD=" in command:
            return "libfaketime is not installed (Debian: libfaketime)"
        if "libasan" in os.environ.get("LD_PRELOAD", "") and any(word.startswith("LD_PRELOAD=") for word in command):
            return "libfaketime and AddressSanitizer cannot both be loaded first"
        try:
            done = subprocess.run([*command, "true"], capture_output=True, text=True, timeout=20)
        except OSError as error:
            return f"{command[0]}: {error.strerror}"
        if done.returncode:
            return f"{command[0]} does not work here: {done.stderr.strip()}"
    return ""


def compare(before_rank1: list[str], truth: str, num_runs: int, before_rank0: list[str] | None = None) -> list[dict]:
    """Return the output of rank 1, which runs `rank.py` under the command ``before_rank1``."""
    port = str(free_port())
    answering = start_rank(before_rank0 or [], _RANK, "0", port, "0")
    try:
        with _proxy(port) if before_rank0 else contextlib.nullcontext():
            done = start_rank(before_rank1, _RANK, "1", port, num_runs, truth).wait(300)
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]
    finally:
        answering.kill()
        answering.wait()


def start_rank(
    before: list[str], program: str, *arguments: object, environment: Mapping[str, str] | None = None, **where: Any
) -> Running:
    """Start a program in what the command ``before`` makes, if there is one."""
    environment = dict(os.environ if environment is None else environment)
    if before[:1] == ["env"]:
        settings = dict(setting.split("=", 1) for setting in before[1:])
        where |= {"environment": environment | settings, "imported_with": settings}
        return start_forked(_IMPORTED, program, *arguments, **where)
    namespaces = _ENTER_NETWORK.format(name=before[3]) if before[:3] == IN_A_NETWORK else ""
    namespaces += _ENTER_TIME if before[-len(IN_A_TIME_NAMESPACE) :] == IN_A_TIME_NAMESPACE else ""
    return start_with_torch(namespaces + program, *arguments, environment=environment, **where)


# As the commands do, but without a new Python, which would import torch again.
_ENTER_NETWORK = """
import ctypes
with open("/run/netns/{name}") as namespace:
    if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), 0x40000000):
        raise OSError(ctypes.get_errno(), "setns")
"""
# Only children are in the new namespace; they end with this process.
_ENTER_TIME = f"""
import ctypes, os, signal
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x80):
    raise OSError(ctypes.get_errno(), "unshare")
with open("/proc/self/timens_offsets", "w") as offsets:
    offsets.write("monotonic {3600 * HOURS_AHEAD} 0")
if child := os.fork():
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
libc.prctl(1, signal.SIGKILL, 0, 0, 0)
"""


NEAR, FAR = f"kinetoscope-near-{os.getpid()}", f"kinetoscope-far-{os.getpid()}"


@contextlib.contextmanager
def network_namespaces() -> Iterator[tuple[list[str], list[str]]]:
    """Two network namespaces without a connection, as the commands that run something in each."""
    try:
        for name in (NEAR, FAR):
            _run("ip", "netns", "add", name)
            _run("ip", "-n", name, "link", "set", "lo", "up")
        yield [*IN_A_NETWORK, NEAR], [*IN_A_NETWORK, FAR]
    finally:
        for name in (NEAR, FAR):
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


@contextlib.contextmanager
def _proxy(port: str) -> Iterator[None]:
    command = [sys.executable, str(_FOLDER / "delaying_proxy.py"), FAR, NEAR, port]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield
        finally:
            process.kill()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
