"""Copying logs by batch: out of a folder or a cluster, into the topics of a cluster, with a map of where each offset went.

| module | owns |
|---|---|
| source_batches | what a source's batches become: those that pass as they are, those that are rebuilt |
| column_rebuilding | rebuilding: rows of columns into batches without gaps |
| copy_plan | what is read of a source topic |
| copier | one partition's copy: chunks, a transaction each, resumed where the last one ended |
| offset_map, offset_map_file | where each offset went, kept in files |
| replay | which window of a topic goes where, fixed at the first start |
| target_topics | topics made like the source's |
| mirror_folder, mirror_groups | what a mirror keeps beside its maps; the source's groups in the target |
| failover | where a group goes on in a mirror |

Needs Arrow. `tidelog.spark.jobs` runs this, a partition a task.
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
