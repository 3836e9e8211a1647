"""The progress of share groups in a partition, in `__share_group_state` (KIP-932).

| key | record |
|---|---|
| 0 | a snapshot: the start offset, and the state of the batches after it |
| 1 | an update of the preceding snapshot; a start offset of -1 means unchanged |

`delivery_complete_count` is the number of records after the start offset that need no further delivery (KIP-1226), -1 if it is
unknown.
"""

from __future__ import annotations

import uuid

from tidelog.wire.fields import Message, Struct, array, int8, int16, int32, int64, string, uuid16


class StateBatch(Struct):
    first_offset: int = int64()
    last_offset: int = int64()
    delivery_state: int = int8()
    delivery_count: int = int16()


class ShareSnapshotKey(Message, versions="0"):
    group_id: str = string()
    topic_id: uuid.UUID = uuid16()
    partition: int = int32()


class ShareSnapshotValue(Message, versions="0", flexible="0+"):
    snapshot_epoch: int = int32()
    state_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=-1, tag=0)
    create_timestamp: int = int64()
    write_timestamp: int = int64()
    state_batches: list[StateBatch] = array(StateBatch)


class ShareUpdateKey(Message, versions="1"):
    group_id: str = string()
    topic_id: uuid.UUID = uuid16()
    partition: int = int32()


class ShareUpdateValue(Message, versions="0", flexible="0+"):
    snapshot_epoch: int = int32()
    leader_epoch: int = int32()
    start_offset: int = int64()
    delivery_complete_count: int = int32(default=-1, tag=0)
    state_batches: list[StateBatch] = array(StateBatch)
