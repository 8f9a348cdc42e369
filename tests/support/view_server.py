"""Servers of `kinetoscope view`, for tests that connect to them through sockets or in a browser."""

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from urllib.parse import urlsplit

from kinetoscope.core.paths.run_folder import RunFolder
from kinetoscope.server.report_builder import ReportBuilder
from kinetoscope.server.row_filler import RowFiller
from kinetoscope.server.run_lists import RunLists
from kinetoscope.server.server import FolderServer
from kinetoscope.server.site import Site

PERFETTO = "https://ui.perfetto.dev"
MAX_WAIT_S = 60


def command_of(job, folder):
    """Return the command of a job of `kinetoscope view`, at normal priority: on a machine that tests keep busy, a job
    of low priority would hardly run."""
    program = (
        "import runpy, sys; from kinetoscope.core.background import background_process; "
        "background_process.lower_priority = lambda: None; runpy.run_module(sys.argv.pop(1), run_name='__main__')"
    )
    return [sys.executable, "-c", program, f"kinetoscope.cli.{job}", json.dumps(str(folder))]


@contextmanager
def served(folder, perfetto_url=PERFETTO, connections=None, works_in=None):
    """Run a server on a thread of this process. With a folder ``works_in`` for reports, it also has the background
    processes of `kinetoscope view`, which compute unknown values of runs, and make reports."""
    run_folder = RunFolder(folder)
    filler = RowFiller(run_folder.path, command_of("run_rows_job", run_folder.path)) if works_in else None
    made = ReportBuilder(works_in, command_of("report_job", run_folder.path)) if works_in else None
    site = Site(RunLists(run_folder, perfetto_url, filler), made)
    with FolderServer(site, connections=connections) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
            for worker in filter(None, (filler, made)):
                worker.close()


@contextmanager
def view_command(*arguments, environment=None):
    """Run the command in another process, with its ``output`` until it was ready, and its ``link``."""
    command = [sys.executable, "-m", "kinetoscope", "view", *map(str, arguments)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        try:
            lines = []
            while not lines or "Ctrl-C" not in lines[-1]:
                lines.append(process.stdout.readline())
                assert lines[-1], process.communicate()
            process.output = "".join(lines)
            process.link = re.search(r"http://\S+token=\S+", process.output)[0]
            yield process
        finally:
            process.kill()


def interrupt(process, number=signal.SIGINT):
    """Send a signal; return the exit code, the further output, and the errors."""
    process.send_signal(number)
    out, err = process.communicate(timeout=MAX_WAIT_S)
    return process.returncode, out, err


def send_request(port, path="/", *, method="GET", host=None, **headers):
    """Return the status, the headers and the body of a response."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=MAX_WAIT_S)
    try:
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        connection.putheader("Host", host or f"127.0.0.1:{port}")
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def log_in(link, host=None):
    """Return the cookie that a browser gets for the link."""
    parts = urlsplit(link)
    _, headers, _ = send_request(parts.port, f"/?{parts.query}", host=host)
    return headers["Set-Cookie"].partition(";")[0]
