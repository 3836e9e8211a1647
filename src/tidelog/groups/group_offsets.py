"""A group's committed offsets, and those pending in open transactions.

A partition's offset is the one whose record stands last in ``__consumer_offsets``. Those of a transaction count from its commit
on, but stand where they were written: an offset that the group committed meanwhile is newer, and stays.

| a partition's offset goes | when |
|---|---|
| by its own time | it was committed with one (before Kafka 2.1), and that has come |
| `offsets.retention.minutes` after the group became empty | the group has a protocol and no members |
| ... after it was committed | nobody ever joined the group, or it is stable and subscribes to another topic now (KIP-211) |
| with its topic | |
| with its group | |
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import chain
from typing import NamedTuple

from tidelog.model import TopicPartition

NO_EXPIRY = -1


class CommittedOffset(NamedTuple):
    """Where a group continues reading a partition. Times in epoch ms."""

    offset: int
    leader_epoch: int
    """Of the last record that was read, -1 if it is unknown (KIP-320)."""
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_EXPIRY
    """Its own end, -1 where the broker's retention decides."""
    record_offset: int = -1
    """Where it is in the log: the offset of its batch."""


class GroupOffsets:
    """The committed and the pending offsets of one group. Nothing in here is written to a log: the caller has done that."""

    __slots__ = ("_committed", "_pending")

    def __init__(self) -> None:
        self._committed: dict[str, dict[int, CommittedOffset]] = {}
        self._pending: dict[int, dict[TopicPartition, CommittedOffset]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._committed.values()))

    # --- asking

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        """Return what was committed of a partition, None if nothing was."""
        of_topic = self._committed.get(topic)
        return None if of_topic is None else of_topic.get(partition)

    def by_topic(self) -> Mapping[str, Mapping[int, CommittedOffset]]:
        """Return all that was committed. It is not the caller's to change, and changes itself."""
        return self._committed

    def all(self) -> Iterator[tuple[TopicPartition, CommittedOffset]]:
        """Yield all that was committed."""
        for topic, of_topic in self._committed.items():
            for partition, committed in of_topic.items():
                yield TopicPartition(topic, partition), committed

    @property
    def is_empty(self) -> bool:
        """Whether nothing was committed, and no open transaction is about to."""
        return not self._committed and not self._pending

    @property
    def has_pending(self) -> bool:
        """Whether an open transaction is about to commit anything."""
        return bool(self._pending)

    def is_pending(self, key: TopicPartition) -> bool:
        """Whether an open transaction is about to commit an offset of a partition."""
        return any(key in pending for pending in self._pending.values())

    def pending_producers(self) -> Collection[int]:
        """Return the ids of the producers whose open transactions are about to commit anything."""
        return self._pending.keys()

    def pending_among(self, keys: Collection[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """Return those of `keys` that open transactions are about to commit, by producer id."""
        wanted = dict.fromkeys(keys)
        found = {producer_id: _in_both(wanted, pending) for producer_id, pending in self._pending.items()}
        return {producer_id: theirs for producer_id, theirs in found.items() if theirs}

    # --- changing

    def put(self, key: TopicPartition, committed: CommittedOffset) -> None:
        """Note an offset, unless a newer one is there."""
        of_topic = self._committed.get(key.topic)
        if of_topic is None:
            of_topic = self._committed[key.topic] = {}
        before = of_topic.get(key.partition)
        if before is None or before.record_offset < committed.record_offset:
            of_topic[key.partition] = committed

    def put_pending(self, producer_id: int, key: TopicPartition, committed: CommittedOffset) -> None:
        """Note an offset of a producer's open transaction."""
        self._pending.setdefault(producer_id, {})[key] = committed

    def complete(self, producer_id: int, *, is_commit: bool) -> None:
        """End a producer's transaction: what it was about to commit counts from now on, or never."""
        pending = self._pending.pop(producer_id, {})
        if is_commit:
            for key, committed in pending.items():
                self.put(key, committed)

    def remove(self, keys: Iterable[TopicPartition]) -> None:
        """Forget partitions; open transactions do not commit them any more."""
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
        """Return those of `keys` that have an offset, or are about to get one: by records below `end_offset`."""
        pending = self._pending_keys()
        found = ((key, self.get(*key)) for key in dict.fromkeys(keys))
        return [key for key, one in found if (key in pending if one is None else one.record_offset < end_offset)]

    def are_all(self, keys: Collection[TopicPartition]) -> bool:
        """Whether nothing was committed, or is about to be, but of `keys`, which are known."""
        committed = sum(self.get(*key) is not None for key in keys)
        return committed == sum(map(len, self._committed.values())) and self._pending_keys() <= set(keys)

    def partitions(self, topic: str | None = None) -> Iterator[TopicPartition]:
        """Return all partitions, or those of a topic, that have an offset now or are about to get one; one may come twice."""
        committed = [
            (name, list(self._committed.get(name, ()))) for name in (list(self._committed) if topic is None else [topic])
        ]
        pending = [list(of_producer) for of_producer in self._pending.values()]
        about_to = (key for keys in pending for key in keys if topic is None or key.topic == topic)
        return chain((TopicPartition(name, partition) for name, partitions in committed for partition in partitions), about_to)

    def expired(self, now_ms: int, retention_ms: int, *, since_ms: Callable[[CommittedOffset], int]) -> list[TopicPartition]:
        """Return what is to go now: `retention_ms` after `since_ms`, or by its own time.

        Offsets pending in an open transaction stay, too: they would be lost with the offset that they replace.
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
        """Return all that open transactions are about to commit, so that not each of them is asked for each partition."""
        return set().union(*self._pending.values())


def _in_both(some: Collection[TopicPartition], pending: Collection[TopicPartition]) -> list[TopicPartition]:
    """Return the partitions that are in both of two dictionaries, in no more steps than the smaller one has."""
    smaller, larger = (some, pending) if len(some) <= len(pending) else (pending, some)
    return [key for key in smaller if key in larger]
