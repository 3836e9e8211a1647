"""All groups that this broker coordinates, in memory and in ``__consumer_offsets``. A standalone broker coordinates all groups.

A change is written to the log before it is made in memory, so a failed write changes nothing. A group exists in memory from its
first request. An empty group is removed with its last offset, or by DeleteGroups. A group that never had a generation has only
its offsets in the log.

Partitions are loaded one by one on other threads. If a transaction ends while its partition is loading, the end is applied once
the partition is loaded.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator
from functools import partial
from itertools import chain
from typing import TypeAlias

from tidelog.broker.coordinators.append_refusals import refusal
from tidelog.broker.coordinators.groups.consumer_coordinator import ConsumerCoordinator
from tidelog.broker.coordinators.groups.consumer_sessions import forget_session
from tidelog.broker.coordinators.groups.group import Group, GroupState
from tidelog.broker.coordinators.groups.group_records import group_entry, group_value, least_bytes, read_groups
from tidelog.broker.coordinators.groups.rebalance import Rebalance, give_up
from tidelog.broker.coordinators.groups.subscriptions import is_short, subscriptions, topics_in
from tidelog.broker.coordinators.state_log import InternalTopic, StateLog, chunks
from tidelog.broker.core import Core
from tidelog.broker.loop.retry_log import RetryLog
from tidelog.broker.requests.slices import step_by_step
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.broker.topics.topics import Topics
from tidelog.errors import TidelogError
from tidelog.groups.group_offsets import CommittedOffset
from tidelog.groups.offset_records import GROUP_VALUE_VERSION, OFFSET_VALUE_VERSION, group_key, offset_key
from tidelog.model import OFFSETS_TOPIC, TopicPartition
from tidelog.records.builder import NO_PRODUCER, Producer
from tidelog.records.compression import Codec
from tidelog.records.state_batches import Entry, StateBatch
from tidelog.wire.coordinator.consumer_protocol import PROTOCOL_TYPE
from tidelog.wire.coordinator.versioned import encode_versioned
from tidelog.wire.error_codes import ErrorCode

logger = logging.getLogger("tidelog.broker")

ASIDE_BYTES = 1 << 20
"""A group's record of at least this size is built on another thread."""

Removal: TypeAlias = Generator[None, None, ErrorCode]
"""A generator that lets other work run at each `yield`. It returns NONE or an error code."""


def offsets_topic(config: BrokerConfig) -> InternalTopic:
    """Return the topic ``__consumer_offsets``, with the properties that a broker sets when it creates the topic."""
    return InternalTopic(
        OFFSETS_TOPIC,
        config.offsets_topic_num_partitions,
        config.offsets_topic_replication_factor,
        {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": config.offsets_topic_segment_bytes,
        },
        Codec(config.offsets_topic_compression_codec),
        config.offsets_commit_timeout_ms,
    )


class Groups:
    """The group coordinator. `log` stores its state in ``__consumer_offsets``."""

    def __init__(self, core: Core, log: StateLog, topics: Topics) -> None:
        self.log = log
        self.retries = RetryLog(logger)
        """Limits the log lines about failures that clients cause repeatedly, because they retry."""
        cluster = core.config.cluster
        protocol = None if cluster is None or cluster.zookeeper is None else cluster.zookeeper.protocol
        self.group_version = GROUP_VALUE_VERSION if protocol is None else protocol.group_value
        self.offset_version = OFFSET_VALUE_VERSION if protocol is None else protocol.offset_value
        """The versions in which record values are written, which all brokers of the cluster can read."""
        self.rebalance = Rebalance(core, self.store, self.store_aside)
        self.consumers = ConsumerCoordinator(core, topics, self.get, self._append, self.rebalance, self.group_version)
        self._core = core
        self._groups: dict[str, Group] = {}
        self._kept_in: dict[int, set[str]] = {}
        """Group ids by the partition that stores them."""
        self._open: dict[int, set[str]] = {}
        self._ended_while_loading: dict[int, list[tuple[int, bool]]] = {}

    @property
    def config(self) -> BrokerConfig:
        return self._core.config

    def start(self) -> None:
        """Load the groups from the data folder, and start the periodic check for expired offsets."""
        now_ms = self._core.clock.now_ms()

        def read(batches: Iterator[StateBatch]) -> dict[str, Group]:
            return read_groups(batches, now_ms, has_consumers=self.consumers.is_enabled)

        self.log.load(read, self._install, self._unload)
        self._core.delays.every(self._core.config.offsets_retention_check_interval_ms, self.expire, "expired offsets")

    def _install(self, partition: int, loaded: dict[str, Group]) -> None:
        for group_id, group in loaded.items():
            if group_id in self._groups:
                # The topic has more partitions than before. The latest records are in the partition to which the group now maps.
                logger.warning(
                    "group %r is in two partitions of %s: using the partition to which its id maps", group_id, OFFSETS_TOPIC
                )
                if self.log.partition_of(group_id) != partition:
                    continue
            self._groups[group_id] = group
            self._kept_in.setdefault(partition, set()).add(group_id)
            for producer_id in group.offsets.pending_producers():
                self._open.setdefault(producer_id, set()).add(group_id)
        for producer_id, is_commit in self._ended_while_loading.pop(partition, ()):
            self.complete_transaction(partition, producer_id, is_commit)
        for group in loaded.values():
            if self._groups.get(group.group_id) is group:
                if group.consumer is not None:
                    self.consumers.resume(group)
                elif group.members:
                    self.rebalance.resume(group)

    # --- asking

    def code_for(self, group_id: str) -> ErrorCode:
        """Return NONE if this broker is the group's coordinator and ready, otherwise the error code for requests about the group.

        Raises TopicMissingError if the topic must be created first.
        """
        return self.log.code_for(group_id)

    def get(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    def get_or_create(self, group_id: str) -> Group:
        """Return a group. If the group is unknown, create it."""
        group = self._groups.get(group_id)
        if group is None:
            group = self._groups[group_id] = Group(group_id, self._core.clock.now_ms())
            self._kept_in.setdefault(self.log.partition_of(group_id), set()).add(group_id)
        return group

    def all(self) -> list[Group]:
        return list(self._groups.values())

    # --- writing

    def store(self, group: Group) -> ErrorCode:
        """Write the group's generation, members and assignments to the log. Return NONE, or the error code for its members."""
        return self._append(
            group.group_id, map(partial(group_entry, version=self.group_version), [group]), at_least_bytes=least_bytes(group)
        )

    def store_aside(self, group: Group, is_wanted: Callable[[], bool], done: Callable[[ErrorCode], object]) -> None:
        """Like `store`, but another thread builds a large record. Call `done` with NONE or the error code. If `is_wanted`
        returns False once the record is built, drop the record and do not call `done`.
        """
        group_id, version, size = group.group_id, self.group_version, least_bytes(group)
        if size < ASIDE_BYTES or self._writing(group_id, partial(self.log.check_size, self.log.partition_of(group_id), size)):
            done(self.store(group))
            return
        value = group_value(group, version)

        def built(batch: bytearray | BaseException) -> None:
            if not is_wanted():
                return
            if isinstance(batch, BaseException):
                self.retries.error("group %r: could not build the group's record: %s", group_id, batch)
                done(ErrorCode.UNKNOWN_SERVER_ERROR)
                return
            done(self._writing(group_id, lambda: self.log.append_batch(self.log.partition_of(group_id), batch)))

        self._core.heavy.run(lambda: self.log.build([(group_key(group_id), encode_versioned(value, version))]), built)

    def note_pending(self, producer_id: int, group: Group, key: TopicPartition, committed: CommittedOffset) -> None:
        """Note an offset that a producer has committed in a transaction that is still open."""
        group.offsets.put_pending(producer_id, key, committed)
        self._open.setdefault(producer_id, set()).add(group.group_id)

    def complete_transaction(self, partition: int, producer_id: int, is_commit: bool) -> None:
        """Apply the end of a producer's transaction to all groups of the partition of ``__consumer_offsets`` that contains its
        marker.
        """
        if self.log.readiness(partition) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            self._ended_while_loading.setdefault(partition, []).append((producer_id, is_commit))
            return
        group_ids = self._open.get(producer_id, set())
        for group_id in [one for one in group_ids if self.log.partition_of(one) == partition]:
            group_ids.discard(group_id)
            group = self._groups.get(group_id)
            if group is not None:
                group.offsets.complete(producer_id, is_commit=is_commit)
        if not group_ids:
            self._open.pop(producer_id, None)

    def existing(self, group_id: str) -> Group | ErrorCode:
        """Return a group, or the error code of `code_for`, or GROUP_ID_NOT_FOUND."""
        code = self.code_for(group_id)
        if code:
            return code
        group = self.get(group_id)
        return ErrorCode.GROUP_ID_NOT_FOUND if group is None or group.state is GroupState.DEAD else group

    def remove(self, group: Group) -> Removal:
        """Delete a group and its offsets in memory and in the log; the group is then DEAD. Return NONE, or the error code if it
        was not deleted. Runs in slices.

        If a member joins or commits between two slices, the group is kept with the offsets that are left.
        """
        return self.remove_offsets(group, group.offsets.partitions())

    def remove_offsets(self, group: Group, keys: Iterable[TopicPartition]) -> Removal:
        """Delete a group's offsets for the given partitions. An empty group is deleted with its last offset. Return NONE or an
        error code. Runs in slices; as in `remove`, changes between two slices are kept.
        """
        partition = self.log.partition_of(group.group_id)
        end_offset = self.log.end_offset(partition)
        id_bytes = len(group_key(group.group_id))
        left = chunks(keys, lambda key: id_bytes + len(key.topic))
        following = next(left, [])
        while True:
            going, following = following, next(left, [])
            some = group.offsets.known(going, end_offset)
            is_over = not following and group.is_empty and group.offsets.are_all(some)
            code = self._write_tombstones(group, some, with_group=is_over)
            if code is not ErrorCode.NONE:
                return code
            group.offsets.remove(some)
            if is_over:
                group.move(GroupState.DEAD, self._core.clock.now_ms())
                self._groups.pop(group.group_id, None)
                self._kept_in.get(partition, set()).discard(group.group_id)
            if not following:
                return ErrorCode.NONE
            yield None
            if self._groups.get(group.group_id) is not group:
                return self.log.readiness(partition)

    def topic_deleted(self, topic: str) -> Iterator[None]:
        """Delete the offsets of a deleted topic, group by group. If the topic is ``__consumer_offsets``, all groups are
        removed.
        """
        if topic == OFFSETS_TOPIC:
            self.log.forget()
            for partition in list(self._kept_in):
                self._unload(partition)
            self._open.clear()
            self._ended_while_loading.clear()
            return
        for count, group in enumerate(self.all()):
            if count % 16 == 15:
                yield None
            keys = group.offsets.partitions(topic)
            first = next(keys, None)
            if first is not None and self._groups.get(group.group_id) is group:
                yield from self.remove_offsets(group, chain([first], keys))

    def _unload(self, partition: int) -> None:
        """Drop the groups of a partition that has been deleted or is now led by another broker."""
        self._ended_while_loading.pop(partition, None)
        for group_id in self._kept_in.pop(partition, ()):
            group = self._groups.pop(group_id, None)
            if group is not None:
                for producer_id in group.offsets.pending_producers():
                    self._open.get(producer_id, set()).discard(group_id)
                give_up(group)
                for member_id in list(group.sessions):
                    forget_session(group, member_id)

    def _write_tombstones(self, group: Group, keys: list[TopicPartition], *, with_group: bool) -> ErrorCode:
        group_id = group.group_id
        entries: list[Entry] = [(offset_key(group_id, key), None) for key in keys]
        if with_group:
            if group.generation_id > 0:
                entries.append((group_key(group_id), None))
            entries += self.consumers.tombstones(group)
        writes = [(NO_PRODUCER, entries)]
        for producer_id, theirs in group.offsets.pending_among(keys).items():
            # A record outside the transaction does not cancel its pending offsets (see `group_table`): the transaction's commit
            # would restore the offset after the next start.
            producer = self._open_producer(group_id, producer_id)
            if producer is not None:
                writes.insert(0, (producer, [(offset_key(group_id, key), None) for key in theirs]))
        for producer, some in writes:
            code = self._append(group_id, some, producer) if some else ErrorCode.NONE
            if code is not ErrorCode.NONE:
                return code
        return ErrorCode.NONE

    def _open_producer(self, group_id: str, producer_id: int) -> Producer | None:
        """Return a producer's id and epoch if its transaction is open in the group's partition, None otherwise."""
        log = self._core.manager.logs.get(self.log.key(self.log.partition_of(group_id)))
        entry = None if log is None else log.producer_state.last_entry(producer_id)
        return Producer(producer_id, entry.producer_epoch, 0) if entry is not None and entry.has_open_transaction else None

    def _append(
        self, group_id: str, entries: Iterable[Entry], producer: Producer = NO_PRODUCER, at_least_bytes: int = 0
    ) -> ErrorCode:
        def write() -> None:
            partition = self.log.partition_of(group_id)
            self.log.check_size(partition, at_least_bytes)
            self.log.append(partition, list(entries), producer=producer, is_transactional=producer != NO_PRODUCER)

        return self._writing(group_id, write)

    def _writing(self, group_id: str, write: Callable[[], object]) -> ErrorCode:
        """Call `write`; return NONE, or the error code for clients if the log refuses the records."""
        try:
            write()
        except TidelogError as error:
            self.retries.error("group %r: cannot write the group's records to %s: %s", group_id, OFFSETS_TOPIC, error)
            return refusal(error)
        return ErrorCode.NONE

    # --- expiry

    def expire(self) -> None:
        """Remove expired offsets, and empty groups without offsets (KIP-211). The first groups are handled now, the rest in
        slices.

        In a folder that another broker has written, nothing expires until the first commit to this broker. Until then no other
        data is deleted from the folder either.
        """
        if self._core.manager.is_configuration_known(OFFSETS_TOPIC):
            group_ids = [group.group_id for group in reversed(self.all())]  # The last element first, as in `in_turns`.
            step_by_step(self._core.blocking, chain.from_iterable(map(self._expire, group_ids)))

    def _expire(self, group_id: str) -> Iterator[None]:
        yield None
        group = self.get(group_id)
        if group is None or self.log.readiness(self.log.partition_of(group_id)) is not ErrorCode.NONE:
            return
        keys = _expired(group, self._core.clock.now_ms(), self._core.config.offsets_retention_minutes * 60_000)
        metadata = subscriptions(group) if keys else None
        if group.consumer is not None:
            subscribed = group.consumer.is_subscribed
            yield from self._remove_expired(group, [key for key in keys if not subscribed(key.topic)])
        elif group.state is not GroupState.STABLE or not keys:
            yield from self._remove_expired(group, keys)
        elif metadata is None or is_short(metadata):
            yield from self._remove_unread(group, keys, None if metadata is None else topics_in(metadata))
        else:
            self._core.heavy.run(partial(topics_in, metadata), partial(self._subscribed, group, metadata))

    def _subscribed(self, group: Group, metadata: list[bytes], topics: frozenset[str] | BaseException | None) -> None:
        """Remove expired offsets of topics to which the group does not subscribe, unless the group has changed since
        `metadata` was read.
        """
        if self.get(group.group_id) is group and group.state is GroupState.STABLE and subscriptions(group) == metadata:
            keys = _expired(group, self._core.clock.now_ms(), self._core.config.offsets_retention_minutes * 60_000)
            removing = self._remove_unread(group, keys, None if isinstance(topics, BaseException) else topics)
            step_by_step(self._core.blocking, removing)

    def _remove_unread(self, group: Group, keys: list[TopicPartition], topics: frozenset[str] | None) -> Iterator[None]:
        if topics is not None:
            yield from self._remove_expired(group, [key for key in keys if key.topic not in topics])

    def _remove_expired(self, group: Group, keys: list[TopicPartition]) -> Iterator[None]:
        is_over = group.is_empty and group.offsets.is_empty
        if not keys and not is_over:
            return
        code = yield from self.remove_offsets(group, keys)
        if code is ErrorCode.NONE and keys:
            logger.info("group %r: %d committed offsets have expired", group.group_id, len(keys))


def _expired(group: Group, now_ms: int, retention_ms: int) -> list[TopicPartition]:
    """Return the partitions whose offsets have expired, by the rules in `group_offsets`. For a stable group they may include
    partitions that it still reads.
    """
    offsets = group.offsets
    is_empty = group.state is GroupState.EMPTY
    since_ms = group.state_timestamp_ms
    if is_empty and group.protocol_type is not None and since_ms >= 0:  # Records from before Kafka 2.1 do not contain it.
        return offsets.expired(now_ms, retention_ms, since_ms=lambda committed: since_ms)
    if is_empty or group.protocol_type is None or (group.state is GroupState.STABLE and group.protocol_type == PROTOCOL_TYPE):
        return offsets.expired(now_ms, retention_ms, since_ms=lambda committed: committed.commit_timestamp_ms)
    return []
