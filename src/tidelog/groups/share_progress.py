"""The progress of share groups from ``__share_group_state``: a snapshot and its updates for each share partition (KIP-932).

| record | effect |
|---|---|
| a snapshot | replaces the state |
| ... without a value | removes the state |
| an update | changes the start offset, unless it is -1, and the state of the batches that it lists |
| an update without a snapshot | has no effect, as in Kafka's share coordinator |

Records before the start offset are done. Later records may be done, too: acknowledged or archived.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tidelog.errors import ProtocolError
from tidelog.groups.modern_groups import TopicIdPartition
from tidelog.records.state_batches import StateBatch
from tidelog.wire.coordinator import share_state
from tidelog.wire.coordinator.share_state import ShareSnapshotKey, ShareSnapshotValue, ShareUpdateKey, ShareUpdateValue
from tidelog.wire.coordinator.versioned import decode_versioned, version_of

_SNAPSHOT, _UPDATE = 0, 1
_DONE = frozenset({2, 4})
"""Delivery states: acknowledged, archived. 0 is available."""


class ShareProgress(NamedTuple):
    """A share group's progress in a partition."""

    start_offset: int
    """The offset of the first record that may still be delivered."""
    next_offset: int
    """The offset of the first record that, according to the log, must still be delivered; at or after the start offset."""
    delivered: int
    """The number of records after the start offset that are done."""


Progress = dict[str, dict[TopicIdPartition, ShareProgress]]
"""The progress by group and share partition."""


@dataclass(slots=True)
class _State:
    start_offset: int
    batches: list[share_state.StateBatch]
    delivered: int
    updates: list[ShareUpdateValue] = field(default_factory=list)

    def result(self) -> ShareProgress | None:
        start, delivered = self.start_offset, self.delivered
        ranges = [(one.first_offset, one.last_offset, one.delivery_state) for one in self.batches]
        for update in self.updates:
            start = update.start_offset if update.start_offset >= 0 else start
            delivered = update.delivery_complete_count
            for one in update.state_batches:
                ranges = _painted(ranges, one.first_offset, one.last_offset, one.delivery_state)
        if start < 0:
            return None
        done = sorted((max(first, start), last) for first, last, state in ranges if state in _DONE and last >= start)
        position = start
        for first, last in done:
            if first > position:
                break
            position = max(position, last + 1)
        if delivered < 0:  # Before Kafka 4.2.
            delivered = sum(last + 1 - first for first, last in done)
        return ShareProgress(start, position, delivered)


def _painted(ranges: list[tuple[int, int, int]], first: int, last: int, state: int) -> list[tuple[int, int, int]]:
    """Return the ranges with a new range added, which overwrites the parts that it overlaps."""
    kept = []
    for one_first, one_last, one_state in ranges:
        if one_first < first:
            kept.append((one_first, min(one_last, first - 1), one_state))
        if one_last > last:
            kept.append((max(one_first, last + 1), one_last, one_state))
    return [*kept, (first, last, state)]


class ShareStates:
    """Reads batches of ``__share_group_state``, partition by partition."""

    def __init__(self, only: str | None = None) -> None:
        self._only = only
        self._states: dict[str, dict[TopicIdPartition, _State]] = {}
        self.unread: Counter[str] = Counter()
        """The number of unreadable records, by description."""

    def read(self, batches: Iterable[StateBatch]) -> None:
        """Read batches of a partition, in log order. May be called repeatedly."""
        for batch in batches:
            for record in batch.records if batch.marker is None else ():
                try:
                    self._take(record.key, record.value)
                except ProtocolError:
                    self.unread["records of __share_group_state that cannot be read"] += 1

    def _take(self, key: bytes | None, value: bytes | None) -> None:
        version = None if key is None else version_of(key)
        if key is None or version not in (_SNAPSHOT, _UPDATE):
            self.unread[f"keys of version {version} in __share_group_state"] += 1
            return
        read: ShareSnapshotKey | ShareUpdateKey
        read = decode_versioned(ShareSnapshotKey, key) if version == _SNAPSHOT else decode_versioned(ShareUpdateKey, key)
        if self._only not in (None, read.group_id):
            return
        states = self._states.setdefault(read.group_id, {})
        place = TopicIdPartition(read.topic_id, read.partition)
        if version == _SNAPSHOT:
            if value is None:
                states.pop(place, None)
                return
            snapshot = decode_versioned(ShareSnapshotValue, value)
            states[place] = _State(snapshot.start_offset, snapshot.state_batches, snapshot.delivery_complete_count)
        elif value is not None and place in states:
            states[place].updates.append(decode_versioned(ShareUpdateValue, value))

    def progress(self) -> Progress:
        """Return the progress of all groups."""
        return {group: _results(states) for group, states in self._states.items()}


def _results(states: Mapping[TopicIdPartition, _State]) -> dict[TopicIdPartition, ShareProgress]:
    found = {place: state.result() for place, state in states.items()}
    return {place: one for place, one in found.items() if one is not None}
