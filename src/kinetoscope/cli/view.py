"""The command ``kinetoscope view``: the runs of a folder in a browser on this machine."""

import argparse
import getpass
import json
import os
import socket
import sys
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from urllib.parse import urlsplit

from kinetoscope.cli.arg_types import parse_port
from kinetoscope.cli.options import add_json
from kinetoscope.cli.paths import find_run_folder
from kinetoscope.cli.signals import catch_signals, wait_for_signal
from kinetoscope.core.background.jobs import job_command
from kinetoscope.core.paths.atomic_file import temporary_folder
from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.core.text.wording import format_count, sanitize_lines
from kinetoscope.errors import SettingsError
from kinetoscope.server.plain_pages import render_redirect
from kinetoscope.server.report_builder import ReportBuilder
from kinetoscope.server.row_filler import RowFiller
from kinetoscope.server.run_lists import RunLists
from kinetoscope.server.server import LOOPBACK, FolderServer
from kinetoscope.server.site import Site

_PERFETTO = "https://ui.perfetto.dev"
_POLL_S = 0.1
_EXAMPLES = """\
examples:
  kinetoscope view runs
      open a page of all runs in a folder, with their states, reports and traces
  kinetoscope view runs/digits --no-open
      serve one run, and print the link instead of opening a browser
  kinetoscope view /nfs/runs --port 8123
      serve on a machine that you reach by SSH, and print the ssh command to use
  kinetoscope view runs --perfetto-url http://127.0.0.1:9001
      open traces in the Perfetto at this address, for machines without internet

Only browsers on this machine that have the link can read the runs; nothing outside the
folder is served. A click on a trace opens Perfetto in another tab and passes the file
to it within the browser: nothing is uploaded. Ctrl-C stops it.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``view``."""
    parser.epilog = _EXAMPLES
    parser.add_argument("folder", metavar="PATH", help="folder of runs, run folder, or trace")
    parser.add_argument("--port", metavar="N", type=parse_port, default=0, help="port (default: a free one)")
    parser.add_argument("--no-open", action="store_true", help="print the link instead of opening a browser")
    add_json(parser)
    parser.add_argument(
        "--perfetto-url",
        metavar="URL",
        type=_parse_web_address,
        default=_PERFETTO,
        help=f"open traces in this Perfetto (default: {_PERFETTO})",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve the folder until Ctrl-C or a signal to end."""
    folder = RunFolder(find_run_folder(arguments.folder))
    with (
        catch_signals() as received,
        _open_site(folder, arguments.perfetto_url) as site,
        _run_server(site, arguments.port) as server,
    ):
        num_runs = len(site.lists.find().runs)
        if arguments.json:
            print(json.dumps({"link": server.link, "folder": str(folder.path), "num_runs": num_runs}), flush=True)
        else:
            _print_link(server, sanitize_lines(folder.path), num_runs)
        with _open_browser(server.link, is_wanted=not arguments.no_open and _has_browser()):
            wait_for_signal(received)
    if not arguments.json:
        print("\nStopped.")
    return 0


@contextmanager
def _open_site(folder: RunFolder, perfetto_url: str) -> Iterator[Site]:
    """Yield the site, with background processes that analyse runs and write reports."""
    if getattr(sys, "frozen", False):  # sys.executable is the user's program
        yield Site(RunLists(folder, perfetto_url))
        return
    served = str(folder.path)
    with temporary_folder() as build_folder:
        filler = RowFiller(folder.path, job_command("kinetoscope.cli.run_rows_job", served))
        builder = ReportBuilder(build_folder, job_command("kinetoscope.cli.report_job", served))
        try:
            yield Site(RunLists(folder, perfetto_url, filler), builder)
        finally:
            filler.close()
            builder.close()


def _print_link(server: FolderServer, folder: str, num_runs: int) -> None:
    """Print the link, and the ssh command on a remote machine."""
    print(f"{format_count(num_runs, 'run')} in {folder}. Open this link:\n")
    print(f"    {server.link}\n")
    if "SSH_CONNECTION" in os.environ:
        print(_format_ssh_hint(server.server_port))
    print("The link grants read access: keep it private. Press Ctrl-C to stop.", flush=True)


def _parse_web_address(text: str) -> str:
    """Return the address of a web server, without credentials."""
    wrong = argparse.ArgumentTypeError(f"cannot read the address {text!r}; write it as in {_PERFETTO}")
    try:
        parts = urlsplit(text)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and "@" not in parts.netloc
        is_good = is_good and (parts.port is None or parts.port > 0) and text.isascii() and text.isprintable()
    except ValueError:
        raise wrong from None
    if not is_good or " " in text:
        raise wrong
    return text


@contextmanager
def _run_server(site: Site, port: int) -> Iterator[FolderServer]:
    """Yield a server on a thread.

    Raises:
        SettingsError: the port cannot be used.
    """
    try:
        server = FolderServer(site, port)
    except OSError as error:
        raise SettingsError(
            f"--port: cannot use port {port}: {error.strerror or error}. Pass another --port, or none for a free one."
        ) from None
    with server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": _POLL_S}, name="kinetoscope view")
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def _format_ssh_hint(port: int) -> str:
    """Return the ssh command that forwards the port."""
    destination = f"{_read_user_name()}@{socket.gethostname()}"
    return (
        "You are connected over SSH. To open the link on your own machine, run this command there, with the host name "
        f"that you use for this machine:\n\n    ssh -N -L {port}:{LOOPBACK}:{port} {destination}\n"
    )


def _read_user_name() -> str:
    """Return the user's name; ``YOU`` if the system has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # the user id has no name, as in containers, or this is Windows
        return "YOU"


def _has_browser() -> bool:
    """Return whether a browser could open on the user's screen: not over SSH, and not without a display."""
    has_screen = sys.platform == "darwin" or any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
    return has_screen and "SSH_CONNECTION" not in os.environ


@contextmanager
def _open_browser(link: str, *, is_wanted: bool) -> Iterator[None]:
    """Open the link in a browser.

    Other users of the machine can see the arguments of a browser, and the link has the token. So the browser gets the
    name of a file, which only this user can read and which redirects to the link.
    """
    if not is_wanted:
        yield
        return
    with TemporaryDirectory(prefix="kinetoscope-view-") as folder:  # only its owner can open it
        page = Path(folder, "open.html")
        page.write_text(render_redirect(link), encoding="utf-8")
        # Some browsers do not return until they are closed.
        Thread(target=webbrowser.open, args=(page.as_uri(),), daemon=True).start()
        yield
