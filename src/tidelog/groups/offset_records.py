"""Encodes keys and values of ``__consumer_offsets``; `group_table` reads them.

| key | value | written as | read |
|---|---|---|---|
| group, topic, partition | a committed offset | key v1, value v3; v1 with an expiration time | keys v0 and v1, values v0 to v4 |
| group | generation, members, assignments | key v2, value v3 | values v0 to v4 |
| any other (groups of the newer protocols) | | never | skipped |

The records are Kafka's. A value of None deletes its key.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from tidelog.groups.group_offsets import NO_EXPIRY, CommittedOffset
from tidelog.model import TopicPartition
from tidelog.records.state_batches import Entry
from tidelog.wire.coordinator.group_metadata import GroupMetadataKey
from tidelog.wire.coordinator.offset_commit import OffsetCommitKey, OffsetCommitValue
from tidelog.wire.coordinator.versioned import encode_versioned

OFFSET_KEY_VERSION: Final = 1
OFFSET_VALUE_VERSION: Final = 3
EXPIRING_OFFSET_VALUE_VERSION: Final = 1
"""The only version with a field for an expiration time."""
GROUP_KEY_VERSION: Final = 2
GROUP_VALUE_VERSION: Final = 3

MAX_STRING: Final = 2**15 - 1
_KEY_BEGIN: Final = Struct(">h").pack(OFFSET_KEY_VERSION)
_NO_TEXT: Final = b"\x00\x00"
_pack_length = Struct(">h").pack
_pack_partition = Struct(">i").pack
_pack_value = Struct(">hqi").pack
_pack_time = Struct(">q").pack


def offset_key(group_id: str, key: TopicPartition) -> bytes:
    """Return the key of a group's committed offset for a partition."""
    return encode_versioned(OffsetCommitKey(group_id, key.topic, key.partition), OFFSET_KEY_VERSION)


def offset_entries(
    group_id: str, offsets: Iterable[tuple[TopicPartition, CommittedOffset]], version: int = OFFSET_VALUE_VERSION
) -> list[Entry]:
    """Return the records for the offsets of one commit.

    A broker with many groups spends most of its time on commits, so the bytes are assembled directly here. `offset_entry` returns
    the same bytes. `version` is the newest value version that all coordinators in the cluster can read.
    """
    group = _string(group_id)
    topics: dict[str, bytes | None] = {}
    entries: list[Entry] = []
    for key, committed in offsets:
        name, partition = key
        offset, leader_epoch, metadata, commit_ms, expire_ms, _ = committed
        topic = topics[name] if name in topics else topics.setdefault(name, _string(name))
        text = _string(metadata) if metadata else _NO_TEXT
        if group is None or topic is None or text is None or expire_ms != NO_EXPIRY or version != OFFSET_VALUE_VERSION:
            entries.append(offset_entry(group_id, key, committed, version))
            continue
        value = b"".join((_pack_value(OFFSET_VALUE_VERSION, offset, leader_epoch), text, _pack_time(commit_ms)))
        entries.append((b"".join((_KEY_BEGIN, group, topic, _pack_partition(partition))), value))
    return entries


def _string(text: str) -> bytes | None:
    """Return a length-prefixed string; None if the codec must reject the string."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return None
    return _pack_length(len(data)) + data if len(data) <= MAX_STRING else None


def offset_entry(group_id: str, key: TopicPartition, committed: CommittedOffset, version: int = OFFSET_VALUE_VERSION) -> Entry:
    """Return the record of a committed offset, in `version` unless the offset has an expiration time, which needs a different
    version.
    """
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
    )
    has_expiry = committed.expire_timestamp_ms != NO_EXPIRY
    return offset_key(group_id, key), encode_versioned(value, EXPIRING_OFFSET_VALUE_VERSION if has_expiry else version)


def group_key(group_id: str) -> bytes:
    """Return the key of a group's own record."""
    return encode_versioned(GroupMetadataKey(group_id), GROUP_KEY_VERSION)
