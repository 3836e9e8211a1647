"""Sends requests to HDFS with `hdfs-native`, which implements Hadoop's protocol without Java.

HDFS has no ETags, so a file version is identified by its size and modification time. The namenodes of a name service, and
security settings, come from Hadoop's own configuration files in `HADOOP_CONF_DIR`.

| failure | result |
|---|---|
| a refused or broken connection | retried with growing pauses for about ten seconds per namenode, then StorageError |
| the file is gone, or its size or time has changed | SegmentChangedError |
| HDFS denies access | AuthenticationError |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from tidelog.errors import AuthenticationError, SegmentChangedError, StorageError, TidelogError
from tidelog.extras import imported_from
from tidelog.objects.address import Place
from tidelog.objects.listing import ObjectFacts

_TRIES = {"dfs.client.failover.max.attempts": "3"}
_DENIED = ("AccessControlException", "SaslException", "Kerberos", "GSSAPI")

_Result = TypeVar("_Result")


def open_hdfs_store(place: Place, options: Mapping[str, str]) -> HdfsStore:
    """Return a client for an HDFS cluster. Raises MissingPackageError, StorageError."""
    with imported_from("hdfs", "hdfs_native"):
        from hdfs_native import Client
    own = {name: value for name, value in options.items() if not name.startswith("cache_")}
    address = str(place._replace(prefix=""))
    return HdfsStore(_tried(lambda: Client(address, _TRIES, **own), address), address)


class HdfsStore:
    """A client for one HDFS cluster. Errors show `address`."""

    def __init__(self, client: Any, address: str) -> None:
        self._client = client
        self._address = address

    def list(self, prefix: str) -> Iterable[tuple[str, ObjectFacts]]:
        at = f"{self._address}/{prefix}"
        try:
            found = _tried(lambda: list(self._client.list_status(f"/{prefix}", recursive=True)), at)
        except SegmentChangedError:
            return
        for one in found:
            if not one.isdir:
                yield one.path.lstrip("/"), _facts(one)

    def read(self, key: str, facts: ObjectFacts, start: int, end: int) -> memoryview:
        path, at = f"/{key}", f"{self._address}/{key}"

        def get() -> bytes:
            with self._client.read(path) as file:  # Opening fixes the file's blocks, so check the file's state only now.
                if _facts(self._client.get_file_info(path)) != facts or len(file) != facts.size_bytes:
                    raise SegmentChangedError("an object was overwritten while it was being read", path=at)
                data: bytes = file.read_range(start, end - start)
                return data

        data = _tried(get, at)
        if len(data) != end - start:
            raise StorageError("a response has the wrong length", path=at, position=start, found=len(data), expected=end - start)
        return memoryview(data)


def _tried(ask: Callable[[], _Result], at: str) -> _Result:
    try:
        return ask()
    except TidelogError:
        raise
    except FileNotFoundError:
        raise SegmentChangedError("an object has been deleted", path=at) from None
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        if isinstance(error, PermissionError) or any(word in str(error) for word in _DENIED):
            raise AuthenticationError(f"HDFS denied access: {reason}", path=at) from None
        raise StorageError(f"HDFS failed: {reason}", path=at) from None


def _facts(status: Any) -> ObjectFacts:
    return ObjectFacts(status.length, status.modification_time * 1_000_000, "")
