"""The storage engine: writes, keeps, recovers and compacts logs as Apache Kafka 3.9.1 does.

`log_manager.LogManager` owns a data folder, `partition_log.PartitionLog` one partition, `segment.LogSegment` one segment::

    with LogManager("/var/lib/tidelog", SystemClock()) as manager:
        manager.create_topic("orders", 4, {"retention.ms": -1})
        manager.log("orders", 0).append_as_leader(records, leader_epoch=0)

docs/storage.md describes its use. `tidelog.formats` has the file formats, `tidelog.reader` reads any folder, `tidelog.records`
has the batches. The engine is synchronous: it starts threads only to recover logs and to close them. Time comes from a `Clock`,
and background work runs in `tick`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from tidelog.storage.log_manager import LogManager as LogManager
    from tidelog.storage.partition.partition_log import PartitionLog as PartitionLog
    from tidelog.storage.partition.watermarks import FetchIsolation as FetchIsolation
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "tidelog.storage.log_manager": ("LogManager",),
            "tidelog.storage.partition.partition_log": ("PartitionLog",),
            "tidelog.storage.partition.watermarks": ("FetchIsolation",),
        },
    )

__all__ = ["FetchIsolation", "LogManager", "PartitionLog"]
