"""training: URLs of object stores. What a user wrote flows in; an error, or nothing, flows out."""

import importlib.util
import re

from kinetoscope.errors import SettingsError

# The library that knows a scheme, and what to install for it.
_LIBRARIES = {
    ("s3", "s3a"): ("s3fs", "kinetoscope[s3]"),
    ("gs", "gcs"): ("gcsfs", "kinetoscope[gcs]"),
    ("az", "abfs", "abfss", "adl"): ("adlfs", "kinetoscope[azure]"),
}
_USER_IN_URL = re.compile(r"://[^/@]*:[^/@]*@")


def check_url(url: str, argument: str) -> None:
    """Raises `SettingsError` for a URL nothing can be uploaded to: no scheme, credentials in it, a missing library."""
    scheme, found, _ = url.partition("://")
    if not found:
        raise SettingsError(f"{argument}={url!r} is no URL. Pass one such as 's3://bucket/runs' or 'file:///mnt/runs'.")
    if _USER_IN_URL.search(url) or re.search(r"[?&](sig|token|key|.*signature)=", url, re.IGNORECASE):
        raise SettingsError(
            f"{argument} holds credentials ({scheme}://...). They would end up in logs and files: leave them out, and "
            "give them to the store's own library by its environment variables or its configuration file."
        )
    library, extra = next((found for schemes, found in _LIBRARIES.items() if scheme in schemes), ("fsspec", "fsspec"))
    if missing := [it for it in ("fsspec", library) if importlib.util.find_spec(it) is None]:
        raise SettingsError(f"{argument}={url!r} needs {missing[-1]}, which is not installed: pip install '{extra}'")
