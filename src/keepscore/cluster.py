"""The client of a Dask cluster, from its address or as it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from keepscore.checks import require_package
from keepscore.errors import DtypeError, MissingError

if TYPE_CHECKING:
    from distributed import Client

CONNECT_SECONDS = 10.0

Cluster = object  # the address of a Dask scheduler, or a `distributed.Client`


@contextmanager
def dask_client(cluster: Cluster) -> Iterator[Client]:
    """A client of the cluster; one that was made here from an address is closed at the end."""
    if not isinstance(cluster, str) and not hasattr(cluster, "submit"):
        raise DtypeError(
            "cluster must be the address of a Dask scheduler or a distributed.Client; "
            f"got {type(cluster).__name__}."
        )
    distributed = require_package("distributed", "cluster=", "dask")
    if not isinstance(cluster, str):
        yield cluster  # type: ignore[misc]
        return
    try:
        client = distributed.Client(cluster, timeout=CONNECT_SECONDS)
    except (OSError, ValueError) as error:
        raise MissingError(f"No Dask cluster answers at {cluster}: {error}") from error
    try:
        yield client
    finally:
        client.close()
