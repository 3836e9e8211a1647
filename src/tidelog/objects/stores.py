"""Opens the bucket of an address with the library for its service."""

from __future__ import annotations

import os
from functools import lru_cache

from tidelog.objects.address import Place
from tidelog.objects.listing import ObjectStore

_Pairs = tuple[tuple[str, str], ...]
_PREFIXES = ("AWS_", "AZURE_", "GOOGLE_", "HADOOP_")


def open_store(place: Place, options: _Pairs) -> ObjectStore:
    """Return a client for a bucket. All sources with the same options and the same environment share the client. After access has
    been denied, a new client is opened, because the keys in a file may have been replaced.

    Raises InvalidArgumentError, AuthenticationError, MissingPackageError.
    """
    environment = tuple(sorted(one for one in os.environ.items() if one[0].startswith(_PREFIXES)))
    return _opened(place, options, environment)


@lru_cache(maxsize=32)
def _opened(place: Place, options: _Pairs, environment: _Pairs) -> ObjectStore:
    if place.service == "hdfs":
        from tidelog.objects.hdfs_store import open_hdfs_store

        return open_hdfs_store(place, dict(options))
    from tidelog.objects.object_store import open_object_store

    return open_object_store(place, dict(options), on_refused=_opened.cache_clear)
