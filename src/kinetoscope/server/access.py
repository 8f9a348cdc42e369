"""Access control: a browser needs the link with the token, under a name of this machine."""

import re
import secrets
from urllib.parse import parse_qs

_LOCAL = re.compile(r"(?:localhost|127\.0\.0\.1|\[::1\])(?::([0-9]{1,5}))?", re.IGNORECASE)
_HTTP_PORT = "80"
_TOKEN = "token"


class Access:
    """Secrets of one server: the token in its link, which a browser exchanges for a cookie with another secret.

    Browsers send a cookie of localhost to all ports, so the cookie's name contains the port that the browser uses:
    servers do not overwrite each other's. Behind ``ssh -L`` that is not the port on which the server listens.
    """

    def __init__(self) -> None:
        self._token = secrets.token_urlsafe(32)
        self._secret = secrets.token_urlsafe(32)

    def link(self, port: int) -> str:
        """Return the address to open in a browser."""
        return f"http://127.0.0.1:{port}/?{_TOKEN}={self._token}"

    def has_token(self, query: str) -> bool:
        """Return whether the query of an address has the token."""
        return any(_is_equal(candidate, self._token) for candidate in parse_qs(query).get(_TOKEN, []))

    def cookie(self, host: str) -> str:
        """Return the cookie for a browser with the token, as the value of ``Set-Cookie``."""
        return f"{_build_cookie_name(host)}={self._secret}; HttpOnly; SameSite=Strict; Path=/"

    def has_cookie(self, host: str, cookies: str) -> bool:
        """Return whether the ``Cookie`` header of a request has this server's cookie."""
        pairs = (cookie.strip().partition("=") for cookie in cookies.split(";"))
        return any(name == _build_cookie_name(host) and _is_equal(value, self._secret) for name, _, value in pairs)


def is_local_host(host: str) -> bool:
    """Return whether the ``Host`` of a request is a name of this machine, with any port.

    It is another name after DNS rebinding, by which a foreign page could read these pages as its own.
    """
    return _LOCAL.fullmatch(host) is not None


def _build_cookie_name(host: str) -> str:
    """Return the name of the cookie for the port of a host."""
    match = _LOCAL.fullmatch(host)
    return f"kinetoscope-{(match and match[1]) or _HTTP_PORT}"


def _is_equal(candidate: str, secret: str) -> bool:
    """Return whether strings are equal, in constant time."""
    return secrets.compare_digest(candidate.encode(errors="surrogatepass"), secret.encode())
