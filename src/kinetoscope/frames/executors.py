"""Work on many files by an executor, such as that of a Dask cluster, whose processes are on other machines."""

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError, Executor, Future
from typing import Any

from kinetoscope.core.paths.run_folder import FoundFile
from kinetoscope.errors import ClusterError, SettingsError, TraceFileError

_PACKAGES = ("kinetoscope", "polars")
_MAX_NAMED = 3


def map_function(executor: Executor | None) -> Callable[..., Iterator[Any]]:
    """Return `map`, or the equivalent of an executor.

    Raises:
        SettingsError: if ``executor`` is no executor.
    """
    if executor is None:
        return map
    if not isinstance(executor, Executor):
        raise SettingsError(
            "executor must be one of concurrent.futures, such as ProcessPoolExecutor(), or a Dask client's "
            f"client.get_executor(); not {executor!r}."
        )
    dask = sys.modules.get("distributed.cfexecutor")  # it is imported where there is an executor of Dask
    return _Cluster(executor).each if dask is not None and isinstance(executor, dask.ClientExecutor) else executor.map


class _Cluster:
    """A Dask cluster, by the executor of one of its clients."""

    def __init__(self, executor: Any) -> None:
        self._executor, self._client = executor, executor._client

    def each(self, work: Callable[..., Any], names: Any, *values: Any) -> Iterator[Any]:
        """Map ``work`` over names and values, as `map` does.

        Raises:
            ClusterError: if the cluster cannot do the work, which is cancelled then.
        """
        self._require_workers()
        given = zip(map(_absolute_name, names), *values, strict=False)
        # With pure=True a cluster may answer with what it has found for the same names before.
        calls = {self._executor.submit(_on_worker, work, *call, pure=False): str(call[0]) for call in given}
        return self._results(calls)

    def _results(self, calls: "dict[Future[Any], str]") -> Iterator[Any]:
        from distributed import KilledWorker

        try:
            for future, name in calls.items():
                try:
                    yield future.result()
                except KilledWorker as error:
                    raise ClusterError(
                        f"Cannot read {name} on the Dask cluster: one worker after another ended while it read it, "
                        f"the last one at {error.last_worker.address}. The log of that worker has the reason; if it "
                        "lacked memory, start workers with a higher --memory-limit."
                    ) from error
                except CancelledError as error:
                    raise ClusterError(
                        "The Dask cluster cancelled the work, or its scheduler ended. Check that the scheduler runs, "
                        "and try again."
                    ) from error
        finally:
            for future in calls:
                future.cancel()

    def _require_workers(self) -> None:
        """Raise ClusterError if there are no workers, or some have other versions than this process."""
        versions = self._client.get_versions(packages=_PACKAGES)
        if not versions["workers"]:
            raise ClusterError(
                f"The Dask cluster at {self._client.scheduler.address} has no workers. "
                "Start some, with: dask worker ADDRESS"
            )
        local, remote = _list_versions(versions["client"]), {"its scheduler": _list_versions(versions["scheduler"])}
        remote["its scheduler"]["polars"] = local["polars"]  # the scheduler passes work on, and reads no traces
        remote |= {f"its worker {name}": _list_versions(found) for name, found in versions["workers"].items()}
        others = [_describe_difference(name, found, local) for name, found in remote.items() if found != local]
        if others:
            more = f" (and {len(others) - _MAX_NAMED} more)" if len(others) > _MAX_NAMED else ""
            raise ClusterError(
                f"Cannot use the Dask cluster: {'; '.join(others[:_MAX_NAMED])}{more}. "
                "Install the same versions on all its machines and here."
            )


def _list_versions(found: dict[str, Any]) -> dict[str, str]:
    packages = found["packages"]
    python = ".".join(packages["python"].split(".")[:2])
    return {"Python": python} | {name: packages.get(name) or "" for name in _PACKAGES}


def _describe_difference(name: str, remote: dict[str, str], local: dict[str, str]) -> str:
    different = [package for package in local if remote[package] != local[package]]
    descriptions = [f"{package} {remote[package]}" if remote[package] else f"no {package}" for package in different]
    here = " and ".join(local[package] or "missing" for package in different)
    return f"{name} has {' and '.join(descriptions)}, here it is {here}"


def require_no_standard_input(names: Iterable[Any]) -> None:
    """Raise ClusterError if the standard input is one of the names."""
    if any(isinstance(name, str) and name == "-" for name in names):
        raise ClusterError("Cannot read the standard input on a Dask cluster: write it to a file that all workers see.")


def _absolute_name(name: Any) -> Any:
    """Return the name of a file for a process with another working directory. Traces and URLs stay unchanged."""
    require_no_standard_input([name])
    if not isinstance(name, str) or "://" in name:
        return name
    if isinstance(name, FoundFile):
        return name.absolute()
    return type(name)(os.path.abspath(name))  # it may be a `SpoolPath`, which must stay one


def _on_worker(work: Callable[..., Any], *values: Any) -> Any:
    """Call ``work`` in a worker, and name the worker if it cannot read a file that other machines may have."""
    from distributed import get_worker

    try:
        return work(*values)
    except TraceFileError as error:
        if not isinstance(error.__cause__, OSError):
            raise
        raise TraceFileError(
            f"{error} That was on the Dask worker {get_worker().address}: all workers must see the files of a run "
            "under the same path as this machine does."
        ) from error
