"""Dask cluster of ``--dask ADDRESS``, which reads the traces for a command."""

import argparse
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from kinetoscope.analysis.compressed_pickle import packed_map_function
from kinetoscope.cli.loading import read_each
from kinetoscope.cli.progress import Progress, run_parallel
from kinetoscope.errors import ClusterError, MissingExtraError
from kinetoscope.frames.executors import require_no_standard_input

CONNECT_TIMEOUT_S = 5
_CLOSE_TIMEOUT_S = 1


@contextmanager
def open_reader(arguments: argparse.Namespace) -> Iterator[Callable[..., list[Any]]]:
    """Yield `read_each`, or its counterpart that reads on the cluster at ``--dask``.

    On exit the unfinished work is cancelled; otherwise the cluster is left unmodified.
    """
    if arguments.dask is None:
        yield read_each
        return
    require_no_standard_input(getattr(arguments, "inputs", ()))
    (client,) = run_parallel("connecting", lambda address, _: _connect(address), [arguments.dask])
    try:
        yield partial(_read_on_cluster, client)
    finally:
        with suppress(TimeoutError):
            client.close(timeout=_CLOSE_TIMEOUT_S)


def _read_on_cluster(client: Any, read: Callable[..., Any], names: Sequence[Any], *values: Sequence[Any]) -> list[Any]:
    def work(each: Callable[..., Iterator[Any]], on_progress: Progress) -> list[Any]:
        sizes = [os.path.getsize(name) if os.path.isfile(name) else 0 for name in names]
        results = []
        for result in each(read, names, *values):
            results.append(result)
            on_progress(sum(sizes[: len(results)]), sum(sizes))
        return results

    (results,) = run_parallel("reading", work, [packed_map_function(client.get_executor())])
    return results


def _connect(address: str) -> Any:
    """Return a client of the cluster.

    Raises:
        ClusterError: no cluster answers at the address.
        MissingExtraError: ``distributed`` is not installed.
    """
    try:
        from distributed import Client
    except ImportError as error:
        raise MissingExtraError(
            "--dask requires Dask's distributed, which is not installed. Install it: pip install 'kinetoscope[dask]'"
        ) from error
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # errors are also raised
    _require_scheduler(address)
    return Client(address, timeout=CONNECT_TIMEOUT_S, set_as_default=False)


def _require_scheduler(address: str) -> None:
    """Raise `ClusterError` unless a scheduler answers.

    A `Client` that cannot connect logs errors when it is deleted, so this uses none.
    """
    import asyncio  # here, since the import is slow

    try:
        found = asyncio.run(asyncio.wait_for(_read_identity(address), CONNECT_TIMEOUT_S))
    except Exception as error:  # any program may listen at the address
        reason = f"nothing answers within {CONNECT_TIMEOUT_S} s" if isinstance(error, TimeoutError) else error
        raise ClusterError(
            f"No Dask scheduler at {address}: {reason}. Check that it runs, and pass the address that it prints at its "
            "start, as in tcp://10.0.0.1:8786."
        ) from error
    if found.get("type") != "Scheduler":
        raise ClusterError(
            f"{address} is a {found.get('type')}, not a Dask scheduler. Pass the address of the scheduler."
        )


async def _read_identity(address: str) -> dict[str, Any]:
    """Return the identity of the server at an address."""
    from distributed import Security
    from distributed.core import rpc

    scheduler: Any = rpc(address, connection_args=Security().get_connection_args("client"))
    try:
        return await scheduler.identity()
    finally:
        await scheduler.close_rpc()
