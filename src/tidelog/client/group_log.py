"""What is written of groups in ``__consumer_offsets``, record by record: offsets as they were committed, and who is a member.

| key's version | record | here |
|---|---|---|
| 0, 1 | an offset of (group, topic, partition); a tombstone: it is forgotten | kept, the last one wins |
| 2 | a group's generation, members and assignments; a tombstone: it is gone | the same |
| 3 and later | the newer groups of KIP-848 and their like | passed over |

The log is compacted, so what it says of the past is what compaction has not come to yet: Kafka leaves the segment alone that it
writes to, 100 MiB of commits by default.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from struct import Struct

from tidelog.client.groups import (
    CONSUMER_PROTOCOL,
    EMPTY,
    STABLE,
    CommittedOffset,
    GroupDescription,
    GroupListing,
    GroupMember,
    assigned,
)
from tidelog.client.lag import Commit
from tidelog.errors import ProtocolError
from tidelog.log.names import TopicPartition
from tidelog.wire.coordinator.group_metadata import GroupMetadataKey, GroupMetadataValue
from tidelog.wire.coordinator.offset_commit import OffsetCommitKey, OffsetCommitValue
from tidelog.wire.coordinator.versioned import decode_versioned, version_of

OFFSETS_TOPIC = "__consumer_offsets"

MAX_NAME_BYTES = 2**15 - 1
"""The protocol has two bytes for a text's length."""

_OFFSET_KEYS = (0, 1)
_GROUP_KEY = 2
_PREFIX = Struct(">hh")


def partition_of(group: str, partitions: int) -> int:
    """Return the partition of ``__consumer_offsets`` that a group's records are in: Java's hash of its name."""
    hashed = 0
    units = group.encode("utf-16-be", "surrogatepass")
    for at in range(0, len(units), 2):
        hashed = (31 * hashed + int.from_bytes(units[at : at + 2], "big")) & 0xFFFFFFFF
    # As Kafka takes the absolute value: that of the smallest int counts as 0.
    return (0 if hashed == 0x80000000 else hashed if hashed < 0x80000000 else (1 << 32) - hashed) % partitions


def _prefixes(group: str, versions: Iterable[int]) -> tuple[bytes, ...]:
    """Return what the keys of a group's records begin with; nothing for a name that no group can have."""
    name = group.encode("utf-8", "surrogatepass")
    if len(name) > MAX_NAME_BYTES:
        return ()
    return tuple(_PREFIX.pack(version, len(name)) + name for version in versions)


def group_of(key: bytes | None) -> str | None:
    """Return whose record this is, None for one that is of no group as this module knows them. Raises ProtocolError."""
    if key is None or version_of(key) not in (*_OFFSET_KEYS, _GROUP_KEY):
        return None
    if len(key) < _PREFIX.size:
        raise ProtocolError("a group's record has no name", found=f"{len(key)} bytes", expected=f"{_PREFIX.size} bytes at least")
    _, length = _PREFIX.unpack_from(key)
    return key[_PREFIX.size : _PREFIX.size + length].decode("utf-8", "surrogatepass")


class CommitHistory:
    """One group's commits, as they are read; records of others are passed over at the price of a comparison.

    Commits from before `since_ms` (epoch ms) are not kept.
    """

    def __init__(self, group: str, since_ms: int = 0) -> None:
        self.commits: dict[TopicPartition, list[Commit]] = {}
        self._since_ms = since_ms
        self._prefixes = _prefixes(group, _OFFSET_KEYS)

    def read(self, key: bytes | None, value: bytes | None) -> None:
        """Take a record. Raises ProtocolError for one that is malformed."""
        if key is None or not key.startswith(self._prefixes):
            return
        place = decode_versioned(OffsetCommitKey, key)
        at = TopicPartition(place.topic, place.partition)
        if value is None:
            self.commits.pop(at, None)
            return
        found = decode_versioned(OffsetCommitValue, value)
        if found.commit_timestamp >= self._since_ms:
            self.commits.setdefault(at, []).append(Commit(found.offset, found.commit_timestamp))


@dataclass(slots=True)
class GroupState:
    """What the log says of a group; `metadata` is None where only offsets are known."""

    metadata: GroupMetadataValue | None = None
    offsets: dict[TopicPartition, CommittedOffset] = field(default_factory=dict)
    written_at: dict[TopicPartition, int] = field(default_factory=dict)


class GroupTable:
    """All groups, as a coordinator would load them: feed it each partition's records, those of a transaction when it commits.

    An offset of a transaction counts from its commit on, but stands where it was written: a later one stays. With `only` the
    records of all other groups are passed over.
    """

    def __init__(self, only: str | None = None) -> None:
        self._groups: dict[str, GroupState] = {}
        self._prefixes = (b"",) if only is None else _prefixes(only, (*_OFFSET_KEYS, _GROUP_KEY))

    def read(self, key: bytes | None, value: bytes | None, offset: int) -> None:
        """Take a record and its offset. Raises ProtocolError for one that is malformed."""
        if key is None or not key.startswith(self._prefixes):
            return
        version = version_of(key)
        if version in _OFFSET_KEYS:
            place = decode_versioned(OffsetCommitKey, key)
            at = TopicPartition(place.topic, place.partition)
            state = self._groups.setdefault(place.group, GroupState())
            if value is None:
                state.offsets.pop(at, None)
            elif at not in state.offsets or state.written_at[at] < offset:
                found = decode_versioned(OffsetCommitValue, value)
                state.offsets[at] = CommittedOffset(found.offset, found.leader_epoch, found.metadata, found.commit_timestamp)
                state.written_at[at] = offset
        elif version == _GROUP_KEY:
            name = decode_versioned(GroupMetadataKey, key).group
            state = self._groups.setdefault(name, GroupState())
            state.metadata = None if value is None else decode_versioned(GroupMetadataValue, value)

    def groups(self) -> list[GroupListing]:
        """Return the groups that there are: those with offsets, and those that were written and not removed."""
        return [
            GroupListing(name, _state_name(state), "" if state.metadata is None else state.metadata.protocol_type, None)
            for name, state in sorted(self._groups.items())
            if state.metadata is not None or state.offsets
        ]

    def describe(self, group: str) -> GroupDescription | None:
        """Return a group as it was written last, None if there is none."""
        state = self._groups.get(group)
        if state is None or (state.metadata is None and not state.offsets):
            return None
        metadata = state.metadata
        if metadata is None:
            return GroupDescription(group, EMPTY, "", "", None, ())
        is_consumers = metadata.protocol_type == CONSUMER_PROTOCOL
        members = tuple(
            GroupMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                assigned(bytes(member.assignment)) if is_consumers else None,
            )
            for member in metadata.members
        )
        return GroupDescription(group, _state_name(state), metadata.protocol_type, metadata.protocol or "", None, members)

    def offsets(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """Return what a group has committed, in order."""
        state = self._groups.get(group)
        return {} if state is None else dict(sorted(state.offsets.items()))


def _state_name(state: GroupState) -> str:
    return STABLE if state.metadata is not None and state.metadata.members else EMPTY


Commits = dict[TopicPartition, list[Commit]]


def histories_of(groups: Iterable[str], records: Iterable[tuple[bytes | None, bytes | None]]) -> dict[str, Commits]:
    """Return each group's commits in these records (key, value), oldest first. Raises ProtocolError."""
    histories = {group: CommitHistory(group) for group in groups}
    for key, value in records:
        history = histories.get(group_of(key) or "")
        if history is not None:
            history.read(key, value)
    return {group: history.commits for group, history in histories.items()}
