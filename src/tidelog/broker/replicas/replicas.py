"""The replicas on this broker, changed by the cluster's metadata (Kafka's ReplicaManager).

| metadata change | action here |
|---|---|
| a partition is deleted, or moves to other brokers | requests are refused, pending ones end, its folder is removed |
| this broker gets a replica | its log is created |
| this broker leads, in a newer leader epoch | fetching from the former leader stops; `on_leading` |
| another broker leads, or no broker | pending requests end, the new leader is followed; `on_not_leading` if this broker led |
| the ISR changes | the high watermark may move |
| settings of topics or brokers change | logs apply them |
| brokers are added, removed or fenced | requests that wait for the low watermark are checked again |

Changes are applied one after the other, in slices of the loop. If the disk fails for a replica, that replica goes offline and the
reason is logged; other replicas are not affected.

Use only on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from time import monotonic
from typing import Any, TypeAlias, TypeVar

from tidelog.broker.core import Core
from tidelog.broker.loop.timers import Timer
from tidelog.broker.peers.metadata_plane import MetadataPlane
from tidelog.broker.replicas.fetchers import Fetchers
from tidelog.broker.replicas.following.followed_partition import Followed
from tidelog.broker.replicas.isr_changes import IsrChanges
from tidelog.broker.replicas.offset_waits import OffsetWaits
from tidelog.broker.replicas.partition import IsrChange, Partition
from tidelog.broker.requests.slices import Until, in_slices
from tidelog.errors import TidelogError
from tidelog.metadata.assumed_topic_id import known_topic_id
from tidelog.metadata.delta import MetadataDelta
from tidelog.metadata.records import BROKER_RESOURCE, NO_LEADER, TOPIC_RESOURCE, PartitionRecord
from tidelog.model import TopicPartition
from tidelog.storage.member_log_manager import MemberLogManager
from tidelog.storage.partition.offset_metadata import LogOffsetMetadata
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.steps import Steps
from tidelog.wire.error_codes import ErrorCode

T = TypeVar("T")

logger = logging.getLogger("tidelog.broker")

Changing: TypeAlias = Generator[Until | None, Any, None]
"""A change that is applied in slices of the loop."""

AT_ONCE = 4
"""How many partitions change in one step: each opens its folder and gives work to another thread."""


class Replicas:
    """The partitions of which this broker has a replica."""

    def __init__(self, core: Core, plane: MetadataPlane, fetchers: Fetchers) -> None:
        assert isinstance(core.manager, MemberLogManager)
        self.plane = plane
        self.committed = OffsetWaits(core.timers, core.slices.soon)
        """Operations that wait for a high watermark."""
        self.deleted = OffsetWaits(core.timers, core.slices.soon)
        """Operations that wait for a low watermark."""
        self.on_leading: list[Callable[[PartitionLog, int], object]] = []
        """Called with a log and the leader epoch, when this broker begins to lead it."""
        self.on_not_leading: list[Callable[[TopicPartition], object]] = []
        """Called with a partition that this broker no longer leads."""
        self.on_placed: Callable[[uuid.UUID, PartitionRecord], object] = lambda topic_id, record: None
        """Called with each replica whose log is open, after its metadata record has changed or its log is online again."""
        self.isr_changes = IsrChanges(plane, self._advanced)
        self._core = core
        self._manager = core.manager
        self._fetchers = fetchers
        self._partitions: dict[TopicPartition, Partition] = {}
        self._topic_ids: dict[TopicPartition, uuid.UUID] = {}
        self._lost: dict[TopicPartition, int] = {}
        """Leader epochs in which this broker must not lead, because its disk has lost records that other replicas may have."""
        cluster = core.config.cluster
        self._max_lag_ms = 30_000 if cluster is None else cluster.replica_lag_time_max_ms
        self._lag_timer: Timer | None = None
        self._turn = asyncio.Lock()
        core.manager.offline.left = lambda key: core.slices.soon(partial(self._went_offline, key))

    # --- asking

    def get(self, key: TopicPartition) -> Partition | None:
        """Return a partition, or None if this broker has no replica of it."""
        return self._partitions.get(key)

    @property
    def partitions(self) -> Iterable[Partition]:
        return self._partitions.values()

    def unwritable(self, is_led: bool) -> TopicPartition | None:
        """Return a partition that this broker cannot write and that has other replicas; None if there is none.

        With `is_led`, return only a partition that this broker leads and that another in-sync replica could lead.
        """
        logs = self._manager.logs
        for key, partition in self._partitions.items():
            log = None if partition.log is None else logs.get(key)
            if log is None or log.is_offline:
                record = self.record(key)
                if record is None or len(record.replicas) == 1:
                    continue
                if not is_led or (record.leader == self.plane.node_id and len(record.isr) > 1):
                    return key
        return None

    def record(self, key: TopicPartition) -> PartitionRecord | None:
        """Return the metadata of any partition of the cluster, or None if it is unknown."""
        return self.plane.image.partition(*key)

    # --- start and stop

    def start(self) -> None:
        """Start the fetchers, and check periodically for followers that are not caught up."""
        self._fetchers.start()
        self._lag_timer = self._core.timers.call_later(self._max_lag_ms / 2, self._check_lag)

    async def stop(self) -> None:
        """Stop the fetchers, and stop proposing ISR changes. Idempotent."""
        await self._fetchers.stop()
        if self._lag_timer is not None:
            self._lag_timer.cancel()
        await self.isr_changes.stop()

    def _check_lag(self) -> None:
        self._lag_timer = self._core.timers.call_later(self._max_lag_ms / 2, self._check_lag)
        now_s = monotonic()
        for partition in list(self._partitions.values()):
            partition.maybe_shrink(now_s)

    # --- the metadata changes

    async def published(self, delta: MetadataDelta) -> None:
        """Apply a metadata change, and return once it is applied. Changes are applied one after the other. Disk errors of a
        single replica are logged, not raised.
        """
        async with self._turn:
            await in_slices(self.apply(delta))

    async def stopped(self, keys: Iterable[TopicPartition], *, deleting: bool) -> None:
        """Stop following partitions, or delete them if `deleting`, as a ZooKeeper cluster's controller requests. Raises what
        `published` raises.
        """
        async with self._turn:
            mine = [key for key in keys if key in self._partitions or key in self._manager.logs]
            self._fetchers.leave(mine)
            if deleting:
                await in_slices(self._delete(mine))

    def apply(self, delta: MetadataDelta) -> Changing:
        """Apply a metadata change like `published`, as a generator to be run in slices."""
        gone, staying = [], []
        me = self.plane.node_id
        if delta.deleted_topics:
            gone += [key for key, topic_id in self._topic_ids.items() if topic_id in delta.deleted_topics]
        for count, (topic, record) in enumerate(delta.changed_partitions()):
            key = TopicPartition(topic.name, record.partition_id)
            if me in record.replicas:
                staying.append((key, topic.topic_id))
            elif key in self._partitions and self._topic_ids[key] == topic.topic_id:
                gone.append(key)
            if count % 256 == 255:
                yield None
        yield from self._delete(gone)
        yield from self._create(staying)
        yield from self._take_over(staying)
        yield from self._configure(delta)
        if delta.brokers:
            for key, partition in self._partitions.items():
                if key in self.deleted and partition.is_leader:
                    self.deleted.reached(key, partition.low_watermark)

    def _delete(self, keys: list[TopicPartition]) -> Changing:
        for some in _cut(keys):
            self._fetchers.leave(some)
            for key in some:
                partition = self._partitions.pop(key, None)
                if partition is None:
                    continue
                del self._topic_ids[key]
                self._resigned(key, was_led=partition.is_leader)
                partition.delete()
            yield None
        if keys:
            try:
                yield from self._off_the_loop(self._manager.replicas.deletion(keys))
            except TidelogError as error:
                logger.error("%s", error)

    def _create(self, wanted: list[tuple[TopicPartition, uuid.UUID]]) -> Changing:
        missing = {
            key: topic_id for key, topic_id in wanted if key not in self._manager.logs or self._topic_ids.get(key) != topic_id
        }
        if missing:
            try:
                yield from self._off_the_loop(self._manager.replicas.creations(missing))
            except TidelogError as error:
                logger.error("%s", error)

    def _take_over(self, changed: list[tuple[TopicPartition, uuid.UUID]]) -> Generator[None, None, None]:
        for some in _cut(changed):
            following: dict[int, list[Followed]] = defaultdict(list)
            for key, topic_id in some:
                record = self.record(key)
                if record is None or self.plane.image.topics[key.topic].topic_id != topic_id:
                    continue
                try:
                    self._apply(key, topic_id, record, following)
                except Exception:
                    # A bug must affect only this partition.
                    logger.exception("%s-%d: cannot apply leader epoch %d", *key, record.leader_epoch)
            for leader_id, partitions in following.items():
                self._fetchers.follow(leader_id, partitions)
            yield None

    def _apply(
        self, key: TopicPartition, topic_id: uuid.UUID, record: PartitionRecord, following: dict[int, list[Followed]]
    ) -> None:
        partition = self._partitions.get(key)
        if partition is None:
            partition = Partition(key, self.plane.node_id, self.plane, self._max_lag_ms / 1000, self._propose)
            self._partitions[key] = partition
        self._topic_ids[key] = topic_id
        log = self._manager.logs.get(key)
        was_led = partition.is_leader
        if self._lost.get(key, -1) == record.leader_epoch:
            return
        self._lost.pop(key, None)
        if log is None:
            self._offline(partition)
            return
        if record.leader == self.plane.node_id:
            self._fetchers.leave([key])
        try:
            applied = partition.apply(record, log, monotonic())
        except TidelogError as error:
            logger.error("%s-%d: cannot apply leader epoch %d: %s", *key, record.leader_epoch, error)
            self._offline(partition)
            return
        if not log.is_offline:
            self.on_placed(topic_id, record)
        if applied is None:
            return
        if applied.has_advanced:
            self._advanced(partition)
        if not applied.is_new_epoch:
            return
        if partition.is_leader:
            logger.info("%s-%d: this broker leads in epoch %d, from offset %d", *key, record.leader_epoch, log.log_end_offset)
            self._core.delayed_fetches.appended(key)
            for led in self.on_leading:
                led(log, record.leader_epoch)
            return
        self._resigned(key, was_led=was_led)
        if record.leader == NO_LEADER or log.is_offline:
            self._fetchers.leave([key])
        else:
            following[record.leader].append(Followed(key, known_topic_id(topic_id), log, record.leader_epoch))

    def _offline(self, partition: Partition) -> None:
        if partition.log is not None or partition.state is None:
            was_led = partition.is_leader
            self._fetchers.leave([partition.key])
            partition.go_offline()
            self._resigned(partition.key, was_led=was_led)

    def _resigned(self, key: TopicPartition, *, was_led: bool) -> None:
        """End the waiting requests for a partition that only its leader can complete."""
        record = self.record(key)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if record is None else ErrorCode.NOT_LEADER_OR_FOLLOWER
        self.committed.end(key, code)
        self.deleted.end(key, code)
        self._core.delayed_fetches.appended(key)
        if was_led:
            for resigned in self.on_not_leading:
                resigned(key)

    def _configure(self, delta: MetadataDelta) -> Changing:
        names = [name for kind, name in delta.configs if kind == TOPIC_RESOURCE and name in self.plane.image.topics]
        mine = {(BROKER_RESOURCE, ""), (BROKER_RESOURCE, str(self.plane.node_id))}
        is_brokers = not mine.isdisjoint(delta.configs)
        if not names and not is_brokers:
            return
        try:
            yield from self._off_the_loop(self._manager.replicas.reconfigure(names, broker=is_brokers))
        except TidelogError as error:
            logger.error("%s", error)
        # If fewer replicas must be in sync now, more records may be committed.
        for count, (key, partition) in enumerate(list(self._partitions.items())):
            if partition.is_leader and (is_brokers or key.topic in names) and partition.advance(monotonic()):
                self._advanced(partition)
            if count % 256 == 255:
                yield None

    def _off_the_loop(self, steps: Steps[T]) -> Generator[Until | None, Any, T]:
        """Run steps on the loop, and their blocking parts on another thread."""
        blocking = self._core.blocking
        result: Any = None
        error: Exception | None = None
        while True:
            try:
                step = steps.send(result) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]
            result = error = None
            assert step is None or callable(step)
            if step is None:
                yield None
                continue
            try:
                result = yield Until(lambda done, step=step: blocking.run(step, done))  # type: ignore[misc]
            except Exception as raised:
                error = raised

    # --- partition events

    def advance(self, partition: Partition) -> bool:
        """Advance a partition's high watermark as far as possible, and end the waits for the offsets reached. Return whether it
        moved.
        """
        has_advanced = partition.advance(monotonic())
        if has_advanced:
            self._advanced(partition)
        return has_advanced

    def follower_fetched(
        self,
        key: TopicPartition,
        replica_id: int,
        replica_epoch: int,
        offset: LogOffsetMetadata,
        log_start_offset: int,
        now_s: float,
    ) -> None:
        """Process a follower's fetch of a partition that this broker leads: the follower has everything below `offset`."""
        partition = self._partitions.get(key)
        if partition is None or not partition.is_leader:
            return
        log = partition.log
        assert log is not None
        if partition.follower_fetched(replica_id, replica_epoch, offset, log_start_offset, log.log_end_offset, now_s):
            self._advanced(partition)
        if key in self.deleted:
            self.deleted.reached(key, partition.low_watermark)

    def _advanced(self, partition: Partition) -> None:
        key, log = partition.key, partition.log
        assert log is not None
        self._core.delayed_fetches.appended(key)
        if key in self.committed:
            self.committed.reached(key, log.high_watermark, partition.commit_code)

    def _propose(self, partition: Partition, change: IsrChange) -> None:
        logger.info(
            "%s-%d: changing in-sync replicas from %s to %s",
            *change.key,
            list(partition.isr),
            [broker_id for broker_id, _ in change.isr],
        )
        self.isr_changes.propose(partition, change, self._topic_ids[change.key])

    def _went_offline(self, key: TopicPartition) -> None:
        """Stop fetching for a replica whose disk has failed. Otherwise the leader would still count this replica as in sync."""
        log = self._manager.logs.get(key)
        if log is not None and log.is_offline:
            self._fetchers.leave([key])

    def on_return(self, log: PartitionLog, has_lost: bool) -> None:
        """Handle a partition whose log was loaded again after a disk error.

        A leader that has lost records stays offline until the next election: otherwise its followers would truncate to its log.
        """
        key = log.topic_partition
        partition, record = self._partitions.get(key), self.record(key)
        if partition is None or record is None:
            return
        self._offline(partition)
        if has_lost and record.leader == self.plane.node_id and len(record.isr) > 1:
            self._lost[key] = record.leader_epoch
            logger.error(
                "%s-%d: giving up leadership, because this broker has lost records: another in-sync replica must be elected", *key
            )
            return
        following: dict[int, list[Followed]] = defaultdict(list)
        self._apply(key, self._topic_ids[key], record, following)
        for leader_id, partitions in following.items():
            self._fetchers.follow(leader_id, partitions)


def _cut(whole: list[T]) -> Iterator[list[T]]:
    for start in range(0, len(whole), AT_ONCE):
        yield whole[start : start + AT_ONCE]
