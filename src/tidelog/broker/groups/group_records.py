"""Groups and their offsets as records of ``__consumer_offsets``, and back. The records are Kafka's.

| key | value | written as | read |
|---|---|---|---|
| group, topic, partition | what was committed | key v1, value v3; v1 if it has its own end | keys v0 and v1, values v0 to v4 |
| group | generation, members, assignments | key v2, value v3 | values v0 to v4 |
| any other (groups of the newer protocols) | | never | passed over |

What a partition of the log says is found in one pass, on any thread: `read_groups`. A key's last record counts. Records of a
transaction count with its marker, but stand where they were written: what was committed without a transaction after them is
newer. A record that deletes an offset also ends what open transactions wrote of it before, as it does in a broker that runs.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final, NamedTuple

from tidelog.broker.groups.group import Group, GroupState, Member
from tidelog.broker.groups.group_offsets import NO_EXPIRY, CommittedOffset
from tidelog.broker.state_log import Entry, StateBatch
from tidelog.errors import ProtocolError
from tidelog.log.names import TopicPartition
from tidelog.records.control import ControlType
from tidelog.wire.codec import decoder
from tidelog.wire.coordinator.group_metadata import GroupMetadataKey, GroupMetadataValue, MemberMetadata
from tidelog.wire.coordinator.offset_commit import OffsetCommitKey, OffsetCommitValue
from tidelog.wire.coordinator.versioned import decode_versioned, encode_versioned, version_of

logger = logging.getLogger("tidelog.broker")

OFFSET_KEY_VERSION: Final = 1
OFFSET_VALUE_VERSION: Final = 3
EXPIRING_OFFSET_VALUE_VERSION: Final = 1
"""The only one that has room for a time to end at."""
GROUP_KEY_VERSION: Final = 2
GROUP_VALUE_VERSION: Final = 3

_VERSION_BYTES: Final = 2
_OFFSET_KEYS: Final = (b"\x00\x00", b"\x00\x01")
"""Both versions are alike."""
_GROUP_KEY: Final = b"\x00\x02"

MAX_STRING: Final = 2**15 - 1
_KEY_BEGIN: Final = Struct(">h").pack(OFFSET_KEY_VERSION)
_NO_TEXT: Final = b"\x00\x00"
_pack_length = Struct(">h").pack
_pack_partition = Struct(">i").pack
_pack_value = Struct(">hqi").pack
_pack_time = Struct(">q").pack

_read_offset_key = decoder(OffsetCommitKey, OFFSET_KEY_VERSION, exact=False)
_read_group_key = decoder(GroupMetadataKey, GROUP_KEY_VERSION, exact=False)


# --- writing


def offset_key(group_id: str, key: TopicPartition) -> bytes:
    """Return the key of what a group has committed of a partition."""
    return encode_versioned(OffsetCommitKey(group_id, key.topic, key.partition), OFFSET_KEY_VERSION)


def offset_entries(group_id: str, offsets: Iterable[tuple[TopicPartition, CommittedOffset]]) -> list[Entry]:
    """Return the records of offsets that a group commits together.

    Commits are what a broker of many groups does most, so their bytes are put together here; they are those of `offset_entry`.
    """
    group = _string(group_id)
    topics: dict[str, bytes | None] = {}
    entries: list[Entry] = []
    for key, committed in offsets:
        name, partition = key
        offset, leader_epoch, metadata, commit_ms, expire_ms, _ = committed
        topic = topics[name] if name in topics else topics.setdefault(name, _string(name))
        text = _string(metadata) if metadata else _NO_TEXT
        if group is None or topic is None or text is None or expire_ms != NO_EXPIRY:
            entries.append(offset_entry(group_id, key, committed))
            continue
        value = b"".join((_pack_value(OFFSET_VALUE_VERSION, offset, leader_epoch), text, _pack_time(commit_ms)))
        entries.append((b"".join((_KEY_BEGIN, group, topic, _pack_partition(partition))), value))
    return entries


def _string(text: str) -> bytes | None:
    """Return a text with its length in front; None for one that needs the codec's words about it."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        return None
    return _pack_length(len(data)) + data if len(data) <= MAX_STRING else None


def offset_entry(group_id: str, key: TopicPartition, committed: CommittedOffset) -> Entry:
    """Return the record of a committed offset."""
    value = OffsetCommitValue(
        offset=committed.offset,
        leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
        commit_timestamp=committed.commit_timestamp_ms,
        expire_timestamp=committed.expire_timestamp_ms,
    )
    has_expiry = committed.expire_timestamp_ms != NO_EXPIRY
    version = EXPIRING_OFFSET_VALUE_VERSION if has_expiry else OFFSET_VALUE_VERSION
    return offset_key(group_id, key), encode_versioned(value, version)


def group_key(group_id: str) -> bytes:
    """Return the key of a group's own record."""
    return encode_versioned(GroupMetadataKey(group_id), GROUP_KEY_VERSION)


def group_entry(group: Group) -> Entry:
    """Return a group's own record: its generation, and its members with their assignments."""
    protocol = group.protocol_name
    value = GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=protocol,
        leader=group.leader_id,
        current_state_timestamp=group.state_timestamp_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.protocols.get(protocol or "", b""),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
    return group_key(group.group_id), encode_versioned(value, GROUP_VALUE_VERSION)


# --- reading


class _Stored(NamedTuple):
    """A value as it stands in the log, and the offset of its batch."""

    value: bytes
    record_offset: int


class _Last(NamedTuple):
    """What a partition of the log says, record for record: the last of each key, behind the key's version."""

    groups: dict[bytes, bytes]
    committed: dict[bytes, _Stored]
    pending: dict[int, dict[bytes, _Stored]]
    """What open transactions wrote, by producer id."""


def _last_records(batches: Iterable[StateBatch]) -> _Last:
    """Find the last record of each key. No value is looked into: nearly all are old. Raises ProtocolError for what has no key."""
    found = _Last({}, {}, {})
    groups, committed = found.groups, found.committed
    strange: set[int] = set()
    for batch in batches:
        if batch.marker is not None:
            pending = found.pending.pop(batch.producer_id, {})
            if batch.marker is ControlType.COMMIT:
                for identity, stored in pending.items():
                    before = committed.get(identity)
                    if before is None or before.record_offset < stored.record_offset:
                        committed[identity] = stored
            continue
        base_offset = batch.records[0].offset if batch.records else -1
        written = found.pending.setdefault(batch.producer_id, {}) if batch.is_transactional else committed
        for _, _, key, value in batch.records:
            if key is None:
                raise ProtocolError("a record of groups without a key", found=f"in the batch of offset {base_offset}")
            version, identity = key[:_VERSION_BYTES], key[_VERSION_BYTES:]
            if version in _OFFSET_KEYS:
                if value is not None:
                    written[identity] = _Stored(value, base_offset)
                    continue
                written.pop(identity, None)
                if not batch.is_transactional:
                    for pending in found.pending.values():
                        pending.pop(identity, None)
            elif version == _GROUP_KEY:
                if value is not None:
                    groups[identity] = value
                else:
                    groups.pop(identity, None)
            elif (number := version_of(key)) not in strange:
                strange.add(number)
                logger.warning("records with keys of version %d are no classic group's: they are kept, and not read", number)
    return found


def _offset_place(identity: bytes) -> tuple[str, TopicPartition]:
    read = _read_offset_key(identity)
    return read.group, TopicPartition(read.topic, read.partition)


def _committed(stored: _Stored) -> CommittedOffset:
    value = decode_versioned(OffsetCommitValue, stored.value)
    return CommittedOffset(
        offset=value.offset,
        leader_epoch=value.leader_epoch,
        metadata=value.metadata,
        commit_timestamp_ms=value.commit_timestamp,
        expire_timestamp_ms=value.expire_timestamp,
        record_offset=stored.record_offset,
    )


def read_groups(batches: Iterable[StateBatch], now_ms: int) -> dict[str, Group]:
    """Return the groups of a partition of the log, with their offsets and members, by id.

    A group that has offsets but no record of its own is one that nobody ever joined, or whose record is gone: it is empty. Raises
    ProtocolError for a key or value of Kafka's that is malformed or too new, if it counts.
    """
    found = _last_records(batches)
    groups: dict[str, Group] = {}
    for identity, value in found.groups.items():
        group_id = _read_group_key(identity).group
        groups[group_id] = _group(group_id, decode_versioned(GroupMetadataValue, value), now_ms)

    def group_of(group_id: str) -> Group:
        group = groups.get(group_id)
        if group is None:
            group = groups[group_id] = Group(group_id, now_ms)
        return group

    for identity, stored in found.committed.items():
        group_id, key = _offset_place(identity)
        group_of(group_id).offsets.put(key, _committed(stored))
    for producer_id, pending in found.pending.items():
        for identity, stored in pending.items():
            group_id, key = _offset_place(identity)
            group_of(group_id).offsets.put_pending(producer_id, key, _committed(stored))
    return groups


def _group(group_id: str, value: GroupMetadataValue, now_ms: int) -> Group:
    group = Group(group_id, now_ms)
    group.state = GroupState.STABLE if value.members else GroupState.EMPTY
    group.state_timestamp_ms = value.current_state_timestamp
    group.generation_id = value.generation
    group.protocol_type = value.protocol_type or None
    group.protocol_name = value.protocol
    group.leader_id = value.leader
    for member in _members(value):
        group.members[member.member_id] = member
        if member.group_instance_id is not None:
            group.static_members[member.group_instance_id] = member.member_id
    if group.leader_id is None and group.members:
        group.leader_id = next(iter(group.members))
    return group


def _members(value: GroupMetadataValue) -> Iterator[Member]:
    for one in value.members:
        member = Member(
            one.member_id,
            group_instance_id=one.group_instance_id,
            client_id=one.client_id,
            client_host=one.client_host,
            # Version 0 of the record had none: the session's was meant.
            rebalance_timeout_ms=one.rebalance_timeout if one.rebalance_timeout >= 0 else one.session_timeout,
            session_timeout_ms=one.session_timeout,
            protocol_type=value.protocol_type,
            protocols={value.protocol or "": one.subscription},
        )
        member.assignment = one.assignment
        yield member
