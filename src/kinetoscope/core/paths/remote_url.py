"""URLs of object stores, and the removal of credentials from text before it is shown."""

import importlib.util
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from kinetoscope.errors import SettingsError

# The library for each scheme, and the extra that installs it.
_LIBRARIES = {
    ("s3", "s3a"): ("s3fs", "kinetoscope[s3]"),
    ("gs", "gcs"): ("gcsfs", "kinetoscope[gcs]"),
    ("az", "abfs", "abfss", "adl"): ("adlfs", "kinetoscope[azure]"),
}
_SECRET_VARIABLE = re.compile(r"KEY|SECRET|TOKEN|PASS|CREDENTIAL|SAS|AUTH|CONNECTION_STRING", re.IGNORECASE)
_MIN_SECRET_LENGTH = 6
_SECRET_PATTERNS = (
    re.compile(r"(?<=://)[^/@\s]+@"),  # user:password@host
    re.compile(r"(?<=Credential=)[^\s,&\"']+", re.IGNORECASE),
    re.compile(r"(?<=Signature=)[^\s,&\"']+", re.IGNORECASE),
    re.compile(r"(?<=[?&]sig=)[^\s&\"']+", re.IGNORECASE),
    re.compile(r"(?<=Token=)[^\s,&\"']+", re.IGNORECASE),
    re.compile(r"(?<=Bearer )[^\s,\"']+", re.IGNORECASE),
    re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}\b"),
)


_WITHOUT_HOST = ("file", "local")
_CONTAINER_AT_ACCOUNT = ("az", "abfs", "abfss", "adl")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*")
_USER_IN_URL = re.compile(r"://[^/@]*:[^/@]*@")
_MAX_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class RemoteLocation:
    """A location in a store: the scheme in lower case, the host or bucket, and the parts of the path."""

    scheme: str
    host: str
    parts: tuple[str, ...]

    def is_below(self, other: "RemoteLocation") -> bool:
        """Return whether it is ``other`` itself or a location below it."""
        is_same_store = (self.scheme, self.host) == (other.scheme, other.host)
        return is_same_store and self.parts[: len(other.parts)] == other.parts


def parse_url(url: str, argument: str) -> RemoteLocation:
    """Return the location that a URL names.

    Raises `SettingsError` for a URL that is more than a location: credentials, options after ``?``, ``..``, chains of
    file systems (``a::b``).
    """
    scheme, separator, rest = url.partition("://")
    if separator and (_USER_IN_URL.search(url) or re.search(r"[?&](sig|token|key|.*signature)=", url, re.IGNORECASE)):
        raise SettingsError(
            f"{argument} holds credentials ({scheme}://...). They would end up in logs and files: leave them out, and "
            "give them to the store's own library by its environment variables or its configuration file."
        )
    host, _, path = rest.partition("/")
    if not separator or not rest or not ("::" in url or _SCHEME.fullmatch(scheme)):
        raise SettingsError(
            f"{argument}={url[:_MAX_SHOWN_CHARACTERS]!r} is not a URL. Pass one such as 's3://bucket/runs' or 'file:///mnt/runs'."
        )
    if reason := _find_unsupported_part(url, scheme.lower(), host, path):
        raise SettingsError(
            f"{argument}={url[:_MAX_SHOWN_CHARACTERS]!r} cannot be uploaded to: it has {reason}. Pass only a place, "
            "such as 's3://bucket/runs', and set a store's options in its own library."
        )
    return RemoteLocation(scheme.lower(), host, tuple(part for part in path.split("/") if part not in ("", ".")))


def check_url(url: str, argument: str) -> None:
    """Raise `SettingsError` if nothing can be uploaded to a URL: it is invalid, or its library is missing."""
    if missing := missing_library(url, argument):
        raise SettingsError(missing)


def missing_library(url: str, argument: str) -> str:
    """Return the library that a URL needs and how to install it; "" if it is installed.

    Raises `SettingsError` if the URL is invalid.
    """
    scheme = parse_url(url, argument).scheme
    library, extra = next((found for schemes, found in _LIBRARIES.items() if scheme in schemes), ("fsspec", "fsspec"))
    if missing := [name for name in ("fsspec", library) if importlib.util.find_spec(name) is None]:
        return f"{argument}={url!r} needs {missing[-1]}, which is not installed: pip install '{extra}'"
    return ""


def _find_unsupported_part(url: str, scheme: str, host: str, path: str) -> str:
    """Return the part of a URL that is more than a location; "" if there is none."""
    if "::" in url:
        return "a chain of file systems (::) in it"
    if "?" in url:
        return "options (?) in it"
    if "\\" in url or not url.isprintable():
        return "a backslash or a control character in it"
    if ".." in unquote(path).split("/"):
        return "'..' in it"
    if "@" in host and scheme not in _CONTAINER_AT_ACCOUNT:
        return "a user (@) in it"
    if scheme in _WITHOUT_HOST and host:
        return "no complete path (file:/// has three slashes)"
    return ""


def mask_credentials(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return ``text`` with secrets replaced by ``***``.

    Secrets are the values of environment variables whose names suggest one, and anything that looks like a key, a
    signature or a password.
    """
    secrets = [value for name, value in environment.items() if _SECRET_VARIABLE.search(name)]
    for secret in sorted((secret for secret in secrets if len(secret) >= _MIN_SECRET_LENGTH), key=len, reverse=True):
        text = text.replace(secret, "***")
    for pattern in _SECRET_PATTERNS:
        text = pattern.sub("***", text)
    return text
