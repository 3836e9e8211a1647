"""A group's committed offsets, and the pending offsets of open transactions.

A partition's committed offset is the last record for it in ``__consumer_offsets``. A transaction's offsets take effect when it
commits, but are ordered by where they were written in the log. An offset that the group committed at a later position in the log
is newer and wins.

| an offset expires | if |
|---|---|
| at its own expiration time | it was committed with an expiration time (before Kafka 2.1) |
| `offsets.retention.minutes` after the group became empty | the group has a protocol and no members |
| ... after it was committed | no member ever joined, or the group is stable and no longer subscribes to the topic (KIP-211) |
| when its topic is deleted | always |
| when its group is deleted | always |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

from tidelog.model import NO_TIMESTAMP, TopicPartition

NO_EXPIRY = -1


class CommittedOffset(NamedTuple):
    """The offset at which a group continues reading a partition. Times are in epoch ms."""

    offset: int
    leader_epoch: int
    """The leader epoch of the last consumed record, -1 if it is unknown (KIP-320)."""
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY
    """The offset's own expiration time, -1 if the broker's retention applies."""
    record_offset: int = -1
    """Where the commit is in the log: the offset of its batch."""


class GroupOffsets:
    """The committed and pending offsets of one group, in memory. Callers write offsets to the log before they add them here."""

    __slots__ = ("_committed", "_pending")

    def __init__(self) -> None:
        self._committed: dict[str, dict[int, CommittedOffset]] = {}
        self._pending: dict[int, dict[TopicPartition, CommittedOffset]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._committed.values()))

    # --- asking

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        """Return a partition's committed offset, None if it has none."""
        of_topic = self._committed.get(topic)
        return None if of_topic is None else of_topic.get(partition)

    def by_topic(self) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """Return a live view of all committed offsets, which the caller must not modify."""
        return self._committed

    def all(self) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        """Yield all committed offsets."""
        for topic, of_topic in self._committed.items():
            for partition, committed in of_topic.items():
                yield TopicPartition(topic, partition), committed

    @property
    def is_empty(self) -> bool:
        """Whether the group has neither committed nor pending offsets."""
        return not self._committed and not self._pending

    @property
    def has_pending(self) -> bool:
        """Whether any open transaction has pending offsets."""
        return bool(self._pending)

    def is_pending(self, key: TopicPartition) -> bool:
        """Whether any open transaction has a pending offset for a partition."""
        return any(key in pending for pending in self._pending.values())

    def pending_producers(self) -> Collection[int]:
        """Return the ids of the producers whose open transactions have pending offsets."""
        return self._pending.keys()

    def pending_among(self, keys: Collection[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Return the partitions in `keys` with pending offsets, by producer id."""
        wanted = dict.fromkeys(keys)
        found = {producer_id: _in_both(wanted, pending) for producer_id, pending in self._pending.items()}
        return {producer_id: theirs for producer_id, theirs in found.items() if theirs}

    # --- changing

    def put(self, key: TopicPartition, committed: CommittedOffset) -> None:
        """Add a committed offset unless a newer one exists."""
        of_topic = self._committed.get(key.topic)
        if of_topic is None:
            of_topic = self._committed[key.topic] = {}
        before = of_topic.get(key.partition)
        if before is None or before.record_offset < committed.record_offset:
            of_topic[key.partition] = committed

    def put_rows(self, topics: list[list[Any]], now_ms: int, record_offset: int) -> None:
        """Add the offsets of an OffsetCommit request, whose records are the newest in the log. Its rows are described at
        `records.kernel.build_commit_batch`.
        """
        for name, _, partitions in topics:
            of_topic = self._committed.get(name)
            if of_topic is None:
                of_topic = self._committed[name] = {}
            for index, offset, leader_epoch, commit_ms, metadata in partitions:
                at_ms = now_ms if commit_ms == NO_TIMESTAMP else commit_ms
                fields = (offset, leader_epoch, metadata or "", at_ms, NO_EXPIRY, record_offset)
                of_topic[index] = tuple.__new__(CommittedOffset, fields)  # Twice as fast as the constructor.

    def put_pending(self, producer_id: int, key: TopicPartition, committed: CommittedOffset) -> None:
        """Add a pending offset of a producer's open transaction."""
        self._pending.setdefault(producer_id, {})[key] = committed

    def complete(self, producer_id: int, *, is_commit: bool) -> None:
        """End a producer's transaction: commit or drop its pending offsets."""
        pending = self._pending.pop(producer_id, {})
        if is_commit:
            for key, committed in pending.items():
                self.put(key, committed)

    def remove(self, keys: Iterable[TopicPartition]) -> None:
        """Remove partitions' offsets, including pending ones."""
        going = dict.fromkeys(keys)
        for key in going:
            of_topic = self._committed.get(key.topic)
            if of_topic is not None:
                of_topic.pop(key.partition, None)
                if not of_topic:
                    del self._committed[key.topic]
        for pending in self._pending.values():
            for key in _in_both(going, pending):
                del pending[key]
        if not all(self._pending.values()):
            self._pending = {producer_id: pending for producer_id, pending in self._pending.items() if pending}

    # --- what is to be removed

    def known(self, keys: Iterable[TopicPartition], end_offset: int) -> list[TopicPartition]:
        """Return the partitions in `keys` that have a committed or pending offset from a record below `end_offset`."""
        pending = self._pending_keys()
        found = ((key, self.get(*key)) for key in dict.fromkeys(keys))
        return [key for key, one in found if (key in pending if one is None else one.record_offset < end_offset)]

    def are_all(self, keys: Collection[TopicPartition]) -> bool:
        """Whether no partition outside `keys` has a committed or pending offset. All of `keys` must have one."""
        committed = sum(self.get(*key) is not None for key in keys)
        return committed == sum(map(len, self._committed.values())) and self._pending_keys() <= set(keys)

    def partitions(self, topic: str | None = None) -> Iterator[TopicPartition]:
        """Yield all partitions, or all partitions of a topic, with a committed or pending offset. A partition may be repeated."""
        committed = [
            (name, list(self._committed.get(name, ()))) for name in (list(self._committed) if topic is None else [topic])
        ]
        pending = [list(of_producer) for of_producer in self._pending.values()]
        about_to = (key for keys in pending for key in keys if topic is None or key.topic == topic)
        return chain((TopicPartition(name, partition) for name, partitions in committed for partition in partitions), about_to)

    def expired(self, now_ms: int, retention_ms: int, *, since_ms: Callable[[CommittedOffset], int]) -> list[TopicPartition]:
        """Return the partitions whose offsets have expired: `retention_ms` after `since_ms`, or at the offset's own expiration
        time.

        Partitions with a pending offset do not expire, because the pending offset would be lost as well.
        """
        old = [
            TopicPartition(topic, partition)
            for topic, of_topic in self._committed.items()
            for partition, committed in of_topic.items()
            if (
                now_ms >= committed.expire_timestamp_ms
                if committed.expire_timestamp_ms != NO_EXPIRY
                else now_ms - since_ms(committed) >= retention_ms
            )
        ]
        pending = self._pending_keys()
        return [key for key in old if key not in pending]

    def _pending_keys(self) -> set[TopicPartition]:
        """Return the partitions that have a pending offset in any transaction."""
        return set().union(*self._pending.values())


def _in_both(some: Collection[TopicPartition], pending: Collection[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions that are in both dictionaries, iterating over the smaller one."""
    smaller, larger = (some, pending) if len(some) <= len(pending) else (pending, some)
    return [key for key in smaller if key in larger]
