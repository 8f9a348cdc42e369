"""storage: what a place for finished files has to be able to do. One deed."""

from pathlib import Path
from typing import Protocol


class RemoteStore(Protocol):
    """Takes files to where they outlive this machine, such as the loggers of somebody else's trainer.

    `Profiler.remote_store` may hold one: remote names without a scheme go there when there is no ``upload_to``.
    """

    def put(self, file: Path, remote_name: str) -> None:
        """Takes over ``file``, which is complete, under ``remote_name``: when this returns, the file may be deleted.

        Called on the writer thread. What it raises is reported in the log, and the file stays where it is.
        """
        ...
