"""A committed offset, in `__consumer_offsets`.

| value | change |
|---|---|
| 1 | expire_timestamp, if the client set a retention time |
| 2 | no expire_timestamp (KIP-211) |
| 3 | the leader epoch of the last consumed record (KIP-320) |
| 4 | flexible; the topic's id |

Keys of versions 0 and 1 are equal.
"""

from __future__ import annotations

import uuid

from tidelog.wire.fields import Message, int32, int64, string, uuid16


class OffsetCommitKey(Message, versions="0-1"):
    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1)
    topic_id: uuid.UUID = uuid16("4+", tag=0)
