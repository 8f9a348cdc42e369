"""composer: uploads through the Trainer's loggers. Finished files flow in; what the user's loggers do is theirs."""

from pathlib import Path
from typing import Any, Protocol

from kinetoscope.errors import SettingsError


class TrainerLogger(Protocol):
    """What is asked of a Trainer's logger."""

    def log_traces(self, traces: dict[str, Any]) -> None: ...
    def has_file_upload_destination(self) -> bool: ...
    def upload_file(self, remote_file_name: str, file_path: str, *, overwrite: bool) -> None: ...


class LoggerStore:
    """A `RemoteStore` that hands files to the Trainer's logger, which has staged a copy when `put` returns."""

    def __init__(self, logger: TrainerLogger) -> None:
        self._logger = logger

    def put(self, file: Path, remote_name: str) -> None:
        """Hands ``file`` over; raises what a logger raises."""
        # The logger fills in formats. Ours are filled in, so a brace that is left is meant as it stands.
        name, path = (text.replace("{", "{{").replace("}", "}}") for text in (remote_name, str(file.absolute())))
        self._logger.upload_file(remote_file_name=name, file_path=path, overwrite=True)


def logger_store(logger: TrainerLogger | None) -> LoggerStore | None:
    """Where a Trainer's logger takes files to; None if it takes none."""
    can_upload = getattr(logger, "has_file_upload_destination", None)
    return LoggerStore(logger) if logger is not None and can_upload is not None and can_upload() else None


def path_in_bucket(remote_name: str | None, argument: str) -> str | None:
    """What of ``s3://bucket/path`` names the file: for each bucket the Trainer makes a logger of its own.

    Raises `SettingsError` for a URL with nothing behind the bucket.
    """
    if remote_name is None or "://" not in remote_name:
        return remote_name
    path = remote_name.partition("://")[2].partition("/")[2].lstrip("/")
    if not path:
        raise SettingsError(f"{argument}={remote_name!r} names a bucket and no file in it.")
    return path
