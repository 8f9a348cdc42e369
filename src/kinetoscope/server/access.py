"""Who may read the pages: a browser that was given the link with the token, under a name of this machine."""

import re
import secrets
from urllib.parse import parse_qs

_LOCAL = re.compile(r"(?:localhost|127\.0\.0\.1|\[::1\])(?::([0-9]{1,5}))?", re.IGNORECASE)
_HTTP_PORT = "80"
_TOKEN = "token"


class Access:
    """The secrets of one server: the token in its link, for which a browser gets a cookie with another secret.

    Browsers send a cookie of localhost to all ports, so the cookie's name contains the port that the browser uses:
    servers do not overwrite each other's. Behind ``ssh -L`` that is not the port on which we listen.
    """

    def __init__(self) -> None:
        self._token = secrets.token_urlsafe(32)
        self._secret = secrets.token_urlsafe(32)

    def link(self, port: int) -> str:
        """The address to open in a browser."""
        return f"http://127.0.0.1:{port}/?{_TOKEN}={self._token}"

    def has_token(self, query: str) -> bool:
        """Whether the query of an address has the token."""
        return any(_is_equal(candidate, self._token) for candidate in parse_qs(query).get(_TOKEN, []))

    def cookie(self, host: str) -> str:
        """The cookie for a browser that has shown the token, as the value of ``Set-Cookie``."""
        return f"{_build_cookie_name(host)}={self._secret}; HttpOnly; SameSite=Strict; Path=/"

    def has_cookie(self, host: str, cookies: str) -> bool:
        """Whether the cookies of a request, as it sends them, have ours."""
        pairs = (cookie.strip().partition("=") for cookie in cookies.split(";"))
        return any(name == _build_cookie_name(host) and _is_equal(value, self._secret) for name, _, value in pairs)


def is_local_host(host: str) -> bool:
    """Whether the ``Host`` of a request is a name of this machine, with any port.

    It would be another name if a page elsewhere had its own name lead to this machine, to read our pages as its own.
    """
    return _LOCAL.fullmatch(host) is not None


def _build_cookie_name(host: str) -> str:
    match = _LOCAL.fullmatch(host)
    return f"kinetoscope-{(match and match[1]) or _HTTP_PORT}"


def _is_equal(candidate: str, secret: str) -> bool:
    return secrets.compare_digest(candidate.encode(errors="surrogatepass"), secret.encode())
