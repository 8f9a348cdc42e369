"""Two ranks whose clocks differ, on one machine: by a time namespace, by libfaketime, with a slow network between them.

Nothing outside the machine is touched. Where this user or this kernel can't do it, `unavailable` says why.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from ports import free_port

HOURS_AHEAD = 2
_FOLDER = Path(__file__).parent
_FAKETIME = [f"/usr/lib/{kind}-linux-gnu/faketime/libfaketimeMT.so.1" for kind in ("x86_64", "aarch64")]

IN_A_NETWORK_NAMESPACE = ["unshare", "--net"]
IN_A_TIME_NAMESPACE = ["unshare", "--time", "--monotonic", str(3600 * HOURS_AHEAD)]
TRUE_IN_NAMESPACE = str(-3600 * HOURS_AHEAD * 10**9)


def faketime(settings: str) -> list[str]:
    """A command under libfaketime: ``+3h x1.0001`` is three hours ahead and 100 ppm too fast."""
    library = next((path for path in _FAKETIME if os.path.exists(path)), "")
    return ["env", f"LD_PRELOAD={library}", f"FAKETIME={settings}"]


def unavailable(*commands: list[str]) -> str:
    """Why one of ``commands`` can't be run before another here; empty if all can."""
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
    """What rank 1 printed, run by `rank.py` after the command ``before_rank1``."""
    port = str(free_port())
    program = [sys.executable, str(_FOLDER / "rank.py")]
    errors = subprocess.DEVNULL
    answering = subprocess.Popen([*(before_rank0 or []), *program, "0", port, "0"], stderr=errors)
    try:
        with contextlib.ExitStack() as stack:
            if before_rank0:
                stack.enter_context(_proxy(port))
            done = subprocess.run(
                [*before_rank1, *program, "1", port, str(num_runs), truth], capture_output=True, text=True, timeout=300
            )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]
    finally:
        answering.kill()
        answering.wait()


NEAR, FAR = f"kinetoscope-near-{os.getpid()}", f"kinetoscope-far-{os.getpid()}"


@contextlib.contextmanager
def network_namespaces() -> Iterator[tuple[list[str], list[str]]]:
    """Two network namespaces with no way between them; the commands that run something in each."""
    try:
        for name in (NEAR, FAR):
            _run("ip", "netns", "add", name)
            _run("ip", "-n", name, "link", "set", "lo", "up")
        yield ["ip", "netns", "exec", NEAR], ["ip", "netns", "exec", FAR]
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
