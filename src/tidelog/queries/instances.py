"""Reuses DuckDB instances for one session after another, because opening an instance takes 15 ms, longer than many queries.

An instance serves one session at a time, so nothing of a session is visible to another one. Everything that a session
creates is in its own database or connection, and disappears with it: `Session` uses a database named `session`, which the next
session replaces.
"""

from __future__ import annotations

import atexit
import os
import tempfile
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import duckdb

MOST_IDLE = 4
"""At most this many idle instances are kept for each time zone. Others are closed."""

_SETTINGS = {
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "allow_persistent_secrets": False,
}

_idle: dict[tuple[int, str], list[duckdb.DuckDBPyConnection]] = {}
"""Free instances, by process and time zone. A forked process lacks the threads of its parent's instances, so it can neither use
nor close those instances."""


def connected(zone: str) -> duckdb.DuckDBPyConnection:
    """Return a connection to an instance that no other session is using, with an empty database named `session`.

    All sessions have the same settings. The instance becomes available again once nothing refers to the connection and to the
    relations that were made from it.
    """
    place = os.getpid(), zone
    idle = _idle.setdefault(place, [])
    instance = idle.pop() if idle else _opened(zone)
    instance.execute("DETACH DATABASE IF EXISTS session; ATTACH ':memory:' AS session")
    connection = instance.cursor()
    weakref.finalize(connection, _release, place, instance).atexit = False
    return connection


def _opened(zone: str) -> duckdb.DuckDBPyConnection:
    import duckdb

    spilled = os.path.join(tempfile.gettempdir(), f"tidelog-sql-{os.getpid()}-{os.urandom(4).hex()}")  # noqa: PTH118
    instance = duckdb.connect(config={**_SETTINGS, "temp_directory": spilled})
    instance.execute(
        f"SET GLOBAL python_enable_replacements = false; SET GLOBAL TimeZone = '{zone}'; SET lock_configuration = true"
    )
    return instance


def _release(place: tuple[int, str], instance: duckdb.DuckDBPyConnection) -> None:
    idle = _idle.get(place, [])
    if place[0] != os.getpid() or len(idle) < MOST_IDLE:
        idle.append(instance)


# DuckDB reports objects that exist when the interpreter ends as leaks.
atexit.register(_idle.clear)
