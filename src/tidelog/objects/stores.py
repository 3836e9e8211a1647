"""Opens the bucket of an address, by the library for its service."""

from __future__ import annotations

from functools import lru_cache

from tidelog.objects.address import Place
from tidelog.objects.listing import ObjectStore


@lru_cache(maxsize=32)
def open_store(place: Place, options: tuple[tuple[str, str], ...]) -> ObjectStore:
    """Return a bucket's requests, shared by all sources with the same options. Raises InvalidArgumentError, AuthenticationError,
    MissingPackageError.
    """
    if place.service == "hdfs":
        from tidelog.objects.hdfs_store import open_hdfs_store

        return open_hdfs_store(place, dict(options))
    from tidelog.objects.object_store import open_object_store

    return open_object_store(place, dict(options))
