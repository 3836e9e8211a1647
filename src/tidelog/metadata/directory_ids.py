"""The log directory that a partition's record assigns to a replica (KIP-858; Kafka's DirectoryId).

| id | meaning |
|---|---|
| 0 | migrating: the record is older than directory assignments (`metadata.version` below 3.7-IV2), or has no directory |
| 1 | unassigned: the controller did not know yet which directory the broker would choose |
| 2 | lost: a directory that the broker no longer has |
| up to 99 | reserved |
| any other | the `directory.id` of a data folder |

The ids come from the code of Kafka 3.9.1 and 4.2; the text of KIP-858 has different ids.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection

from tidelog.metadata.records import PartitionRecord

MIGRATING = uuid.UUID(int=0)
UNASSIGNED = uuid.UUID(int=1)
LOST = uuid.UUID(int=2)
_RESERVED = 100


def is_reserved(directory_id: uuid.UUID) -> bool:
    """Whether an id is reserved, so that it is not the id of a data folder."""
    return directory_id.int < _RESERVED


def directory_of(partition: PartitionRecord, node_id: int) -> uuid.UUID | None:
    """Return the directory assigned to a node's replica, None if the node has no replica."""
    try:
        index = partition.replicas.index(node_id)
    except ValueError:
        return None
    return partition.directories[index] if index < len(partition.directories) else MIGRATING


def is_online(directory_id: uuid.UUID, registered: Collection[uuid.UUID]) -> bool:
    """Whether the controllers consider a replica's directory usable; its broker has registered the directories `registered`.

    A broker that has registered no directories is older than directory assignments. All its directories count as usable.
    """
    if directory_id in (MIGRATING, UNASSIGNED):
        return True
    return directory_id != LOST and (not registered or directory_id in registered)
