"""Copies logs batch by batch from a folder or a cluster into topics of a cluster, with a map of source offsets to target offsets.

| module | owns |
|---|---|
| source_batches | turns a source's batches into batches to send: unchanged, or rebuilt |
| column_rebuilding | rebuilds rows of columns into batches without gaps |
| copy_plan | what to read of a source topic |
| copier | copies one partition: in chunks, each a transaction, resumed after the last one |
| offset_map, offset_map_file | the offset maps and their files |
| replay | a replay's window and target, fixed when it is first started |
| target_topics | creates topics like the source's |
| mirror_folder, mirror_groups | the other files of a mirror's folder; the offsets of the source's groups in the target |
| failover | finds the offsets at which a group continues in a mirror |

The copying code needs Arrow. `tidelog.spark.jobs` runs it, one partition per task.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from tidelog.copying.failover import FailoverOptions as FailoverOptions
    from tidelog.copying.failover import PartitionFailover as PartitionFailover
    from tidelog.copying.failover import apply_failover as apply_failover
    from tidelog.copying.failover import plan_failover as plan_failover
    from tidelog.copying.offset_map import OffsetMap as OffsetMap
    from tidelog.copying.offset_map import TargetPosition as TargetPosition
    from tidelog.copying.replay import ReplayRequest as ReplayRequest
else:
    __getattr__ = lazy_exports(
        __name__,
        {
            "tidelog.copying.failover": ("FailoverOptions", "PartitionFailover", "apply_failover", "plan_failover"),
            "tidelog.copying.offset_map": ("OffsetMap", "TargetPosition"),
            "tidelog.copying.replay": ("ReplayRequest",),
        },
    )

__all__ = [
    "FailoverOptions",
    "OffsetMap",
    "PartitionFailover",
    "ReplayRequest",
    "TargetPosition",
    "apply_failover",
    "plan_failover",
]
