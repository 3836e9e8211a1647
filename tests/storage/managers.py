"""Log managers on a folder, with a clock that stands still until it is moved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.storage.partition_logs import NOW_MS, batch
from tidelog.clock import ManualClock
from tidelog.config import PropertyValue
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition.partition_log import PartitionLog

QUIET: dict[str, PropertyValue] = {"log.cleaner.enable": False, "tidelog.time.map.enable": False}
"""For tests that count files and tasks."""


def started(directory: Path, clock: ManualClock | None = None, **properties: PropertyValue) -> LogManager:
    """A manager on `directory` that runs; `properties` are a broker's, with `_` for `.`."""
    manager = LogManager(directory, clock or ManualClock(NOW_MS), properties=dotted(properties))
    manager.startup()
    return manager


@contextmanager
def managed(directory: Path, clock: ManualClock | None = None, **properties: PropertyValue) -> Iterator[LogManager]:
    """The same for a `with` block; it ends cleanly."""
    with LogManager(directory, clock or ManualClock(NOW_MS), properties=dotted(properties)) as manager:
        yield manager


def dotted(properties: dict[str, PropertyValue]) -> dict[str, PropertyValue]:
    return {name.replace("_", "."): value for name, value in properties.items()}


def die(manager: LogManager) -> None:
    """End as a kill does: descriptors and the lock go, nothing is written."""
    for log in manager.logs.values():
        log.close_handlers()
    manager._unlock()


def fill(log: PartitionLog, count: int, *, first_ms: int = NOW_MS, step_ms: int = 1, value: bytes = b"value") -> None:
    """Append one record after another, and take all of them for replicated."""
    for i in range(count):
        log.append_as_leader(batch(timestamp=first_ms + i * step_ms, key=b"key %04d" % i, value=value), 0)
    log.update_high_watermark(log.log_end_offset)


def files(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}
