"""`kinetoscope view`: who may read what, over real sockets."""

import html
import os
import re
import signal
import socket
import stat
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from kinetoscope.cli import main, view
from kinetoscope.core.text.wording import sanitize_sentence
from support.fork_server import run_command
from support.view_server import MAX_WAIT_S, interrupt, log_in, send_request, served, view_command

REPORT = '<!doctype html><meta name="generator" content="kinetoscope 0.1.0" /><p>findings</p>'
SECRET = b'{"SECRET": 1}'


@pytest.fixture
def runs(tmp_path):
    """Make two runs, next to a private file."""
    (tmp_path / "secret.json").write_bytes(SECRET)
    for name in ("digits", "words"):
        (tmp_path / "runs" / name / "traces").mkdir(parents=True)
        (tmp_path / "runs" / name / "traces" / "rank0.json").write_text(f'{{"traceEvents": [], "run": "{name}"}}')
        (tmp_path / "runs" / name / "report.html").write_text(REPORT)
    (tmp_path / "runs" / "digits" / "weights.pt").write_bytes(SECRET)
    return tmp_path / "runs"


@pytest.fixture
def server(runs):
    with served(runs) as server:
        yield server


@pytest.fixture
def get(server):
    """Ask as a browser that has followed the link."""
    cookie = log_in(server.link)
    return lambda path="/", **how: send_request(server.server_port, path, **{"Cookie": cookie} | how)


def test_login_link_sets_a_private_cookie_and_redirects_to_a_url_without_token(server):
    parts = urlsplit(server.link)
    assert parts.hostname == "127.0.0.1"
    status, headers, body = send_request(server.server_port, f"/?{parts.query}")
    assert (status, headers["Location"], body) == (303, "/", b"")
    name, *attributes = headers["Set-Cookie"].split("; ")
    assert sorted(attributes) == ["HttpOnly", "Path=/", "SameSite=Strict"]
    assert parts.query.partition("=")[2] not in name, "a link cannot be made from the cookie"
    status, headers, body = send_request(server.server_port, Cookie=f"other=1; {name}")
    assert status == 200
    assert "Runs in runs" in html.unescape(body.decode())


@pytest.mark.parametrize(
    "cookie", ["", "kinetoscope-{port}=", "kinetoscope-{port}=wrong", "kinetoscope-1={secret}", "{secret}"]
)
def test_without_the_cookie_nothing_is_served(server, cookie):
    secret = log_in(server.link).partition("=")[2]
    cookie = cookie.format(port=server.server_port, secret=secret)
    for path in ("/", "/run/digits", "/trace/digits/traces/rank0.json", "/report/digits/report.html"):
        status, _, body = send_request(server.server_port, path, Cookie=cookie)
        assert status == 403, path
        assert b"Open the link" in body
        assert b"digits" not in body


@pytest.mark.parametrize("token", [b"", b"wrong", b"%00", b"%ff", b"\xfc", b"&token=%ed%a0%80"])
def test_a_wrong_token_gives_no_cookie(server, token):
    answer = raw(server, b"GET /?token=" + token + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b" 403 " in answer.splitlines()[0]
    assert b"Set-Cookie" not in answer


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "LOCALHOST:1", "localhost:65535", "[::1]:8123"])
def test_any_name_of_this_machine_and_any_port_will_do_as_behind_ssh(server, host):
    cookie = log_in(server.link, host)
    assert send_request(server.server_port, host=host, Cookie=cookie)[0] == 200


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:80",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "localhost:",
        "localhost:x",
        "localhost:123456",
        "user@localhost",
        "localhost, evil.example",
        "0.0.0.0",
        "127.1",
        "::1",
        "[::2]",
    ],
)
def test_under_another_name_there_is_no_answer_even_with_the_token_and_the_cookie(server, get, host):
    token = urlsplit(server.link).query
    for status, headers, body in (get(host=host), get(f"/?{token}", host=host)):
        assert status == 403
        assert "Set-Cookie" not in headers
        assert b"digits" not in body


@pytest.mark.parametrize("hosts", [b"", b"Host: localhost\r\nHost: evil.example\r\n"])
def test_a_request_with_no_name_or_two_is_refused(server, hosts):
    token = urlsplit(server.link).query.encode()
    assert b"403" in raw(server, b"GET /?" + token + b" HTTP/1.1\r\n" + hosts + b"\r\n").splitlines()[0]


def raw(server, request):
    with socket.create_connection(("127.0.0.1", server.server_port), MAX_WAIT_S) as connection:
        connection.sendall(request)
        return b"".join(iter(lambda: connection.recv(1 << 16), b""))


OUTSIDE = [
    "../secret.json",
    "%2e%2e/secret.json",
    "..%2fsecret.json",
    "..%2Fsecret.json",
    "digits/../../secret.json",
    "digits/%2e%2e/%2e%2e/secret.json",
    "digits%2f..%2f..%2fsecret.json",
    "%252e%252e%252fsecret.json",
    "..%5csecret.json",
    "/{folder}/secret.json",
    "{folder}/secret.json",
    "%2f{folder}/secret.json",
    "digits/traces/link.json",
    "linked/secret.json",
    "digits/traces/rank0.json%00.json",
    "%00",
    "digits/traces/rank0.json/",
    "digits/traces/rank0.json/../../../../secret.json",
    "digits/.hidden.json",
    "digits/weights.pt",
    "digits/traces",
    "digits/traces/pipe.json",
    ".",
    "",
    "%ff%fe.json",
    "x" * 3000 + ".json",
]


@pytest.mark.parametrize("kind", ["trace", "report", "run", "."])
def test_only_traces_and_reports_inside_the_folder_are_served(get, runs, kind):
    (runs / "digits" / "traces" / "link.json").symlink_to(runs.parent / "secret.json")
    (runs / "linked").symlink_to(runs.parent)
    (runs / "digits" / ".hidden.json").write_bytes(SECRET)
    os.mkfifo(runs / "digits" / "traces" / "pipe.json")
    for path in OUTSIDE:
        status, _, body = get(f"/{kind}/{path.format(folder=runs.parent)}")
        assert b"SECRET" not in body, path
        assert status in (403, 404) or (kind == "run" and path in ("", ".")), path


def test_whole_addresses_as_for_a_proxy_are_refused(server):
    request = f"GET http://127.0.0.1:{server.server_port}/secret.json HTTP/1.1\r\nHost: localhost\r\n"
    request += f"Cookie: {log_in(server.link, 'localhost')}\r\n\r\n"
    assert b"404" in raw(server, request.encode()).splitlines()[0]


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "MKCOL", "get"])
def test_only_reading_is_possible(get, method):
    status, headers, _ = get(method=method)
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("path", ["/", "/trace/digits/traces/rank0.json", "/report/digits/report.html", "/nothing"])
def test_head_is_like_get_without_the_content(server, path):
    request = request_for(server.link, path)
    head, _, content = raw(server, request).partition(b"\r\n\r\n")
    assert f"Content-Length: {len(content)}".encode() in head.splitlines()
    answer = raw(server, request.replace(b"GET", b"HEAD", 1))
    without_date = [re.sub(rb"Date: [^\r]*", b"", answer) for answer in (answer, head + b"\r\n\r\n")]
    assert without_date[0] == without_date[1]


@pytest.mark.parametrize(
    "path", ["/", "/run/digits", "/trace/digits/traces/rank0.json", "/report/digits/report.html", "/none", "/run/none"]
)
def test_every_answer_says_that_it_is_for_our_pages_only(server, get, path):
    anonymous = send_request(server.server_port, path)
    for _, headers, _ in (get(path), get(path, host="evil.example"), anonymous, get(method="PUT")):
        assert headers["Referrer-Policy"] == "no-referrer"
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert headers["Cache-Control"] == "no-store"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
        assert "Access-Control-Allow-Origin" not in headers


def test_a_trace_is_only_ever_downloaded(get, runs):
    (runs / "digits" / '<b>"; filename=x.html; ü.json').write_bytes(b"<script>alert(1)</script>")
    status, headers, body = get("/trace/digits/%3Cb%3E%22%3B%20filename%3Dx.html%3B%20%C3%BC.json")
    assert (status, body) == (200, b"<script>alert(1)</script>")
    assert headers["Content-Type"] == "application/octet-stream"
    kind, name = headers["Content-Disposition"].split("; filename*=UTF-8''")
    assert kind == "attachment"
    assert unquote(name) == '<b>"; filename=x.html; ü.json'
    assert re.fullmatch(r"[\w.%-]+", name), "no letter of the name means something in a header"


def test_a_report_may_be_a_strangers_so_it_belongs_to_no_origin_and_reaches_nothing(get):
    status, headers, body = get("/report/digits/report.html")
    assert (status, body.decode()) == (200, REPORT)
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("sandbox allow-scripts")
    assert "allow-same-origin" not in policy
    assert "connect-src" not in policy, "default-src 'none' counts"


def test_names_from_a_strangers_folder_stay_text(get, runs):
    name = "</script><img src=x onerror=alert(1)>\"'&\u202egpj.json"
    parts = name.split("/")
    folder = runs.joinpath("mean", *parts[:-1])
    folder.mkdir(parents=True)
    (folder / parts[-1]).write_text("{}")
    link = next(link for link in re.findall('href="(/run/mean[^"]*)"', get()[2].decode()))
    page = get(link)[2].decode()
    assert "<img" not in page
    assert sanitize_sentence(parts[-1]) in html.unescape(page)
    for address in re.findall('"(/trace/mean[^"]*)"', page):
        assert get(address)[0] == 200


def test_names_that_are_not_text_can_be_opened_too(get, runs):
    (Path(os.fsdecode(os.fsencode(runs / "digits") + b"/\xff\xfe.json"))).write_bytes(b"odd")
    page = get("/run/digits")[2].decode()
    assert get("/trace/digits/%FF%FE.json")[2] == b"odd"
    assert '"/trace/digits/%FF%FE.json"' in page


def read_whole(link, path):
    """Read an answer piece by piece, and return the length of its content."""
    port = urlsplit(link).port
    with socket.create_connection(("127.0.0.1", port), MAX_WAIT_S) as connection:
        connection.sendall(request_for(link, path))
        with connection.makefile("rb") as stream:
            while stream.readline() != b"\r\n":
                pass
            return sum(map(len, iter(lambda: stream.read(1 << 20), b"")))


def request_for(link, path):
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\nCookie: {log_in(link, 'localhost')}\r\n\r\n".encode()


def most_memory_bytes(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) << 10


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux says how much memory a process had")
def test_a_large_trace_is_never_in_memory_as_a_whole(runs):
    size = 100 << 20
    with (runs / "digits" / "large.json").open("wb") as file:
        file.truncate(size)
    with view_command(runs, "--no-open") as process:
        before = most_memory_bytes(process.pid)
        assert read_whole(process.link, "/trace/digits/large.json") == size
        assert most_memory_bytes(process.pid) - before < size / 4


def test_disconnected_browser_disturbs_no_other(server, get, runs, capfd):
    with (runs / "digits" / "large.json").open("wb") as file:
        file.truncate(50 << 20)
    with socket.create_connection(("127.0.0.1", server.server_port), MAX_WAIT_S) as connection:
        connection.sendall(request_for(server.link, "/trace/digits/large.json"))
        connection.recv(100)
    assert get()[0] == 200
    assert capfd.readouterr().err == ""


def test_external_link_leads_here_only_through_a_kinetoscope_page(server):
    """The browser keeps a strict cookie to itself when another page leads here, so it is requested a second time."""
    elsewhere = {"Sec_Fetch_Mode": "navigate", "Sec_Fetch_Site": "cross-site"}
    status, _, body = send_request(server.server_port, "/run/digits", **elsewhere)
    assert status == 200
    assert b'http-equiv="refresh"' in body
    assert b"digits" not in body
    for other in ({"Sec_Fetch_Mode": "no-cors"}, {"Sec_Fetch_Site": "same-origin"}, {"Sec_Fetch_Site": "none"}):
        assert send_request(server.server_port, **elsewhere | other)[0] == 403


def test_missing_and_unreadable_files_are_reported_plainly(get, runs):
    status, _, body = get("/run/none")
    assert status == 404
    assert b"There is no such run, report or trace." in body
    if os.geteuid():
        (runs / "digits" / "traces" / "rank0.json").chmod(0)
        assert get("/trace/digits/traces/rank0.json")[0] == 403


def test_an_empty_folder_says_what_to_view(tmp_path):
    with served(tmp_path) as server:
        _, _, body = send_request(server.server_port, Cookie=log_in(server.link))
    plain_page = " ".join(body.decode().partition("<noscript>")[2].split())
    assert "There are no runs here yet." in plain_page
    assert "View the folder of your runs, by default <code>runs</code>" in plain_page


def test_two_servers_do_not_take_each_others_cookies(runs, server):
    with served(runs) as other:
        cookies = [log_in(server.link), log_in(other.link)]
        assert len({cookie.partition("=")[0] for cookie in cookies}) == 2, "a browser would keep only one of them"
        both = "; ".join(cookies)
        assert {send_request(each.server_port, Cookie=both)[0] for each in (server, other)} == {200}
        assert send_request(other.server_port, Cookie=log_in(server.link))[0] == 403
        assert send_request(other.server_port, f"/?{urlsplit(server.link).query}")[0] == 403


# -- the command ------------------------------------------------------------------------------------------------------


def without_screen(**more):
    names = ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION", "BROWSER")
    return {name: value for name, value in os.environ.items() if name not in names} | more


def test_the_command_prints_its_link_and_ends_with_ctrl_c_pressed_often(runs):
    with view_command(runs, environment=without_screen()) as process:
        assert "2 runs in " in process.output
        assert "ssh" not in process.output
        port = urlsplit(process.link).port
        assert send_request(port, Cookie=log_in(process.link))[0] == 200
        process.send_signal(signal.SIGINT)
        code, out, err = interrupt(process)
    assert (code, out.strip(), err) == (0, "Stopped.", "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_ends_it_while_a_browser_still_reads(runs, number):
    with (runs / "digits" / "large.json").open("wb") as file:
        file.truncate(50 << 20)
    with view_command(runs, environment=without_screen()) as process:
        address = "127.0.0.1", urlsplit(process.link).port
        with socket.create_connection(address, MAX_WAIT_S) as connection:
            connection.sendall(request_for(process.link, "/trace/digits/large.json"))
            assert connection.recv(100)
            code, _, err = interrupt(process, number)
    assert (code, err) == (0, "")


def test_over_ssh_it_says_how_to_reach_the_link_and_opens_no_browser(runs, tmp_path):
    environment = without_screen(SSH_CONNECTION="10.0.0.1 1 10.0.0.2 22", DISPLAY=":9", BROWSER=fake_browser(tmp_path))
    with view_command(runs, environment=environment) as process:
        port = urlsplit(process.link).port
        assert re.search(rf"^    ssh -N -L {port}:127\.0\.0\.1:{port} \S+@\S+$", process.output, re.MULTILINE)
        assert interrupt(process)[0] == 0
    assert not (tmp_path / "opened").exists()


def fake_browser(folder):
    """Return a program that records its argument, the content of that file, and its permissions."""
    program = folder / "browser"
    program.write_text(
        f"#!{sys.executable}\nimport os, sys, urllib.parse\n"
        "path = urllib.parse.unquote(sys.argv[1].removeprefix('file://'))\n"
        "mode = oct(os.stat(os.path.dirname(path)).st_mode)\n"
        f"open({str(folder / 'writing')!r}, 'w').write('\\n'.join([sys.argv[1], mode, open(path).read()]))\n"
        f"os.rename({str(folder / 'writing')!r}, {str(folder / 'opened')!r})\n"
    )
    program.chmod(0o700)
    return str(program)


def test_the_browser_is_not_given_the_token_where_other_users_can_see_it(runs, tmp_path):
    environment = without_screen(DISPLAY=":9", BROWSER=fake_browser(tmp_path))
    with view_command(runs, environment=environment) as process:
        wait_for(tmp_path / "opened")
        address, mode, page = (tmp_path / "opened").read_text().split("\n", 2)
        assert "token" not in address
        assert stat.S_IMODE(int(mode, 8)) == 0o700
        assert html.escape(process.link) in page
        assert interrupt(process)[0] == 0
    assert not Path(address.removeprefix("file://")).exists(), "a file was left"


def wait_for(path):
    for _ in range(MAX_WAIT_S * 20):
        if path.exists():
            return
        signal.sigtimedwait([], 0.05)
    raise TimeoutError(path)


def test_no_open_opens_no_browser(runs, tmp_path):
    environment = without_screen(DISPLAY=":9", BROWSER=fake_browser(tmp_path))
    with view_command(runs, "--no-open", environment=environment) as process:
        assert interrupt(process)[0] == 0
    assert not (tmp_path / "opened").exists()


def test_a_port_that_is_taken_is_a_plain_error(runs, server):
    done = run_command("view", runs, "--port", server.server_port, "--no-open")
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: --port: cannot use port {server.server_port}: ")
    assert "--port" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_missing_path_is_a_plain_error(runs, capsys):
    assert main(["view", str(runs / "none")]) == 2
    assert capsys.readouterr().err == f"error: No such file or folder: {runs / 'none'}. Check the path.\n"


def test_file_in_a_run_shows_its_run_only(runs):
    with view_command(runs / "digits" / "report.html", "--no-open") as process:
        assert process.output.startswith(f"1 run in {runs / 'digits'}. ")
        assert interrupt(process)[0] == 0


@pytest.mark.parametrize(
    "options",
    [
        ["--port", "65536"],
        ["--port", "-1"],
        ["--port", "http"],
        ["--perfetto-url", "ui.perfetto.dev"],
        ["--perfetto-url", "javascript:alert(1)"],
        ["--perfetto-url", "https://user:word@host"],
        ["--perfetto-url", "https://"],
        ["--perfetto-url", "https://host:port"],
    ],
)
def test_wrong_options_are_usage_errors_that_show_the_right_form(runs, capsys, options):
    with pytest.raises(SystemExit) as end:
        main(["view", str(runs), *options])
    assert end.value.code == 2
    assert re.search("up to 65535|as in https://ui.perfetto.dev", capsys.readouterr().err)


def test_the_line_for_ssh_says_you_where_the_user_has_no_name(monkeypatch):
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 4_000_000_000)  # as in a container
    assert " YOU@" in view._format_ssh_hint(8000)
