"""Uploads through the Trainer's loggers."""

from pathlib import Path
from typing import Any, Protocol

from kinetoscope.errors import SettingsError


class TrainerLogger(Protocol):
    """Methods of a Trainer's logger that are called here."""

    def log_traces(self, traces: dict[str, Any]) -> None:
        """Log traces by name."""
        ...

    def has_file_upload_destination(self) -> bool:
        """Return whether a logger of the Trainer uploads files."""
        ...

    def upload_file(self, remote_file_name: str, file_path: str, *, overwrite: bool) -> None:
        """Upload a file under a remote name."""
        ...


class LoggerStore:
    """`RemoteStore` that gives files to the Trainer's logger. When `put` returns, the logger has its own copy."""

    def __init__(self, logger: TrainerLogger) -> None:
        self._logger = logger

    def put(self, file: Path, remote_name: str) -> None:
        """Give ``file`` to the logger; raise the errors of the logger."""
        # The logger fills in variables in braces. Ours are filled in already, so any brace that is left is escaped.
        name, path = (text.replace("{", "{{").replace("}", "}}") for text in (remote_name, str(file.absolute())))
        self._logger.upload_file(remote_file_name=name, file_path=path, overwrite=True)


def make_logger_store(logger: TrainerLogger | None) -> LoggerStore | None:
    """Return the store behind a Trainer's logger; None if the logger accepts no files."""
    can_upload = getattr(logger, "has_file_upload_destination", None)
    return LoggerStore(logger) if logger is not None and can_upload is not None and can_upload() else None


def strip_bucket(remote_name: str | None, argument: str) -> str | None:
    """Return the part of ``s3://bucket/path`` that names the file: the Trainer creates one logger per bucket.

    Raises:
        SettingsError: for a URL without a path after the bucket.
    """
    if remote_name is None or "://" not in remote_name:
        return remote_name
    path = remote_name.partition("://")[2].partition("/")[2].lstrip("/")
    if not path:
        raise SettingsError(f"{argument}={remote_name!r} names a bucket, but no file in it.")
    return path
