"""The table of groups and their committed offsets: the only reader of ``__consumer_offsets``, for a starting broker and for
folders without a broker.

A partition's batches are applied in order, as Kafka 3.9.1's coordinator loads them (GroupMetadataManager):

| record | effect |
|---|---|
| an offset, outside of transactions | is committed and replaces the previous one |
| ... without a value | removes the committed offset; pending offsets remain and are committed with their transaction |
| an offset in a transaction | is pending until its producer's transaction ends; the last one counts |
| ... without a value | removes the pending offset; the committed offset remains |
| COMMIT | commits the pending offsets, except where a committed offset is later in the log |
| ABORT, or any other control record | drops the pending offsets |
| a group | sets its generation and members; without a value, removes them but not its offsets |
| groups of the newer protocols | are collected for folders (`modern_groups`); a coordinator of classic groups skips them |

All records of a batch have the same `record_offset`: the offset of the batch's first record. Producer epochs are ignored. Kafka 4
differs in one rule: a record without a value outside of transactions also drops earlier pending offsets. For a log written by
Tidelog's broker both rules give the same result, because the broker deletes such an offset in the transaction, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, NamedTuple

from tidelog.errors import ProtocolError
from tidelog.groups.group_offsets import CommittedOffset, GroupOffsets
from tidelog.groups.modern_groups import ModernGroup, ModernRecords, Records
from tidelog.groups.offset_records import GROUP_KEY_VERSION, MAX_STRING, OFFSET_KEY_VERSION
from tidelog.model import TopicPartition
from tidelog.records.control import ControlType
from tidelog.records.state_batches import StateBatch
from tidelog.wire.codec import decoder
from tidelog.wire.coordinator.group_metadata import GroupMetadataKey, GroupMetadataValue
from tidelog.wire.coordinator.offset_commit import OffsetCommitKey, OffsetCommitValue
from tidelog.wire.coordinator.versioned import decode_versioned, version_of

_VERSION: Final = Struct(">h")
_OFFSET_KEYS: Final = (_VERSION.pack(0), _VERSION.pack(OFFSET_KEY_VERSION))
"""The versions of an offset key, encoded. Both have the same fields."""
_GROUP_KEY: Final = _VERSION.pack(GROUP_KEY_VERSION)

_read_offset_key = decoder(OffsetCommitKey, OFFSET_KEY_VERSION, exact=False)
_read_group_key = decoder(GroupMetadataKey, GROUP_KEY_VERSION, exact=False)

Observer = Callable[[bytes, bytes | None], object]
"""A function that receives a key and a value."""


class _Stored(NamedTuple):
    """The raw value, and the offset of its batch's first record."""

    value: bytes
    record_offset: int


@dataclass(slots=True)
class StoredGroup:
    """A group as recorded in the log; `metadata` is None if only offsets are known."""

    metadata: GroupMetadataValue | None = None
    offsets: GroupOffsets = field(default_factory=GroupOffsets)
    modern: ModernGroup | None = None
    """The group, if it uses one of the newer protocols; `metadata` is then None."""


class GroupTable:
    """Builds the table of groups from one partition: call `read` with its batches, then `groups`.

    With `only`, all other groups are skipped. `observe` is called with the key and value of each offset, in the order in which
    they take effect or are deleted. A transaction's offsets take effect at its COMMIT.
    """

    def __init__(self, only: str | None = None, observe: Observer | None = None) -> None:
        self._only = None if only is None else group_prefix(only)
        self._observe = observe
        # Keyed by the key's bytes after its version. Values are decoded only at the end, because most are superseded by then.
        self._groups: dict[bytes, _Stored] = {}
        self._committed: dict[bytes, _Stored] = {}
        self._pending: dict[int, dict[bytes, _Stored]] = {}
        self._modern = ModernRecords()

    def read(self, batches: Iterable[StateBatch]) -> None:
        """Apply batches of the partition, in log order. May be called repeatedly. Raises ProtocolError for a record
        without a key.
        """
        committed, observe, only = self._committed, self._observe, self._only
        for batch in batches:
            if batch.marker is not None:
                self._end(batch.producer_id, is_commit=batch.marker is ControlType.COMMIT)
                continue
            base_offset = batch.records[0].offset if batch.records else -1
            is_plain = not batch.is_transactional
            written = committed if is_plain else self._pending.setdefault(batch.producer_id, {})
            for _, _, key, value in batch.records:
                if key is None:
                    raise ProtocolError(
                        "a record of __consumer_offsets has no key", found=f"a record in the batch at offset {base_offset}"
                    )
                version, identity = key[:2], key[2:]
                if version in _OFFSET_KEYS:
                    if only is not None and not identity.startswith(only):
                        continue
                    if value is not None:
                        written[identity] = _Stored(value, base_offset)
                    else:
                        written.pop(identity, None)
                    if observe is not None and is_plain:
                        observe(key, value)
                elif version == _GROUP_KEY:
                    if only is not None and identity != only:
                        continue
                    if value is not None:
                        self._groups[identity] = _Stored(value, base_offset)
                    else:
                        self._groups.pop(identity, None)
                elif only is None or identity.startswith(only):
                    self._modern.read(version_of(key), identity, value, base_offset)

    def _end(self, producer_id: int, *, is_commit: bool) -> None:
        pending = self._pending.pop(producer_id, None)
        if not pending or not is_commit:
            return
        committed, observe = self._committed, self._observe
        for identity, stored in pending.items():
            before = committed.get(identity)
            if before is None or before.record_offset < stored.record_offset:
                committed[identity] = stored
                if observe is not None:
                    observe(_OFFSET_KEYS[1] + identity, stored.value)

    def groups(self) -> dict[str, StoredGroup]:
        """Return the groups by name, including groups for which only offsets are known.

        A group with only pending offsets is included. Raises ProtocolError for a key or a current value that is malformed or too
        new.
        """
        groups: dict[str, StoredGroup] = {}
        for identity, stored in self._groups.items():
            groups[_read_group_key(identity).group] = StoredGroup(decode_versioned(GroupMetadataValue, stored.value))

        def offsets_of(group: str) -> GroupOffsets:
            stored = groups.get(group)
            if stored is None:
                stored = groups[group] = StoredGroup()
            return stored.offsets

        for identity, stored in self._committed.items():
            group, key = _place(identity)
            offsets_of(group).put(key, _committed(stored))
        for producer_id, pending in self._pending.items():
            for identity, stored in pending.items():
                group, key = _place(identity)
                offsets_of(group).put_pending(producer_id, key, _committed(stored))
        return groups

    def all_groups(self) -> dict[str, StoredGroup]:
        """Return the groups of every type by name. Raises the errors of `groups`. Unreadable records of the newer types are
        counted in `unread`.
        """
        groups = self.groups()
        classic = {_read_group_key(identity).group: stored.record_offset for identity, stored in self._groups.items()}
        for name, modern in self._modern.groups().items():
            if classic.get(name, -1) <= modern.record_offset:
                groups[name] = StoredGroup(offsets=groups[name].offsets if name in groups else GroupOffsets(), modern=modern)
        return groups

    def consumer_records(self) -> dict[str, Records]:
        """Return the records of each consumer group (KIP-848), like `ModernRecords`, unless a newer classic group has the same
        name.
        """
        classic = {_read_group_key(identity).group: stored.record_offset for identity, stored in self._groups.items()}
        return {
            name: records
            for name, (offset, records) in self._modern.consumer_records().items()
            if classic.get(name, -1) <= offset
        }

    @property
    def has_modern(self) -> bool:
        """Whether the log has records of groups of the newer protocols."""
        return not self._modern.is_empty

    @property
    def unread(self) -> Counter[str]:
        """The number of unreadable records of groups of the newer protocols, by description."""
        return self._modern.unread


def group_prefix(group: str) -> bytes:
    """Return the prefix of a group's record keys, after the version. Raises ProtocolError for an invalid name."""
    try:
        name = group.encode()
    except UnicodeEncodeError as error:
        raise ProtocolError("a group's name has an invalid code point", found=repr(group)) from error
    if len(name) > MAX_STRING:
        raise ProtocolError("a group's name is too long", found=f"{len(name)} bytes", expected=f"{MAX_STRING} at most")
    return _VERSION.pack(len(name)) + name


def group_of(key: bytes | None) -> str | None:
    """Return the group of a record, None if the record does not belong to a classic group. Raises ProtocolError."""
    if key is None or key[:2] not in (*_OFFSET_KEYS, _GROUP_KEY):
        return None
    return _read_group_key(key[2:]).group


def _place(identity: bytes) -> tuple[str, TopicPartition]:
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
