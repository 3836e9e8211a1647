"""Reads brokers as the source of a backup.

Requests go to the partitions' leaders, and are repeated if the leader changes. If a leader does not respond in time, its
partitions are reported as failed, and the other partitions are backed up.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from tidelog.backup.layout import assumed_topic_id
from tidelog.capture.capture_source import Failed, FoundBatch, SourceEnds, SourceTopic
from tidelog.capture.rights import describe_rights
from tidelog.client.connections.addresses import BrokerAddress
from tidelog.client.connections.cluster import NO_LEADER, Cluster, Leader, no_leader
from tidelog.client.connections.connection import Connection
from tidelog.client.connections.failures import RETRIABLE, error_for
from tidelog.client.reading.offsets import NotFound, list_offsets
from tidelog.client.reading.partition_fetcher import FetchedBatch, PartitionFetcher
from tidelog.client.reading.topic_configs import NEWEST_VERSION, TOPIC
from tidelog.errors import BrokerError, TidelogError, UnknownTopicOrPartitionError, UnsupportedVersionError
from tidelog.formats import names
from tidelog.model import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED, Isolation, TopicPartition
from tidelog.records.batch import BatchHeader
from tidelog.wire.codec import Message
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResponse
from tidelog.wire.messages.fetch import PartitionData
from tidelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

CLIENT_ID = "tidelog-backup"
PARALLEL = 4
NO_ID = uuid.UUID(int=0)

_TOPIC_CONFIG = 1
"""Kafka's code for a setting whose value is set on the topic itself (DYNAMIC_TOPIC_CONFIG)."""
_EPOCH_VERSION = 4


class _StoredBatches(PartitionFetcher):
    """Fetches all batches of a partition, including control batches and aborted transactions."""

    def _data(self, headers: list[BatchHeader], records: memoryview, found: PartitionData) -> Iterator[FetchedBatch]:
        for header in headers:
            if header.base_offset >= self._end and header.magic == 2:
                return
            self.batches += 1
            yield header, records, header.position


class BrokerCapture:
    """A source that reads the cluster at `address`. `timeout_ms` is how long a leader may be unreachable."""

    is_consistent = True
    parallel = PARALLEL

    def __init__(self, address: str, timeout_ms: int) -> None:
        self._reach = partial(Cluster.at, address, CLIENT_ID, timeout_ms=timeout_ms)
        self.cluster = self._reach().reach()
        self.name = str(self.cluster)
        self._idle: list[Cluster] = []
        """Idle `Cluster` objects for reading partitions. A `Cluster` is not thread-safe, so each thread takes one."""

    def cluster_id(self) -> str | None:
        return self.cluster.cluster_id

    def topics(self) -> dict[str, SourceTopic]:
        return {
            name: SourceTopic(
                name,
                assumed_topic_id(name) if state.topic_id == NO_ID else state.topic_id,
                state.is_internal,
                max((len(one.replicas) for one in state.partitions.values()), default=0),
                tuple(state.partitions),
            )
            for name, state in self.cluster.topics().items()
        }

    def settings(self, topics: Collection[str]) -> tuple[dict[str, dict[str, str]], list[Failed]]:
        found: dict[str, dict[str, str]] = {}
        failed: list[Failed] = []
        if not topics:
            return found, failed
        resources = [DescribeConfigsResource(resource_type=TOPIC, resource_name=topic) for topic in topics]
        try:
            answer = self.cluster.ask_any(
                DescribeConfigsRequest(resources=resources), DescribeConfigsResponse, newest=NEWEST_VERSION
            )
        except TidelogError as error:
            return found, [Failed("the settings of topics", error)]
        for result in answer.results:
            if result.error_code:
                what = f"settings of topic {result.resource_name}"
                failed.append(Failed(what, error_for(result.error_code, what, self.cluster, result.error_message)))
                continue
            found[result.resource_name] = {
                one.name: one.value
                for one in result.configs
                if one.value is not None
                and (one.config_source == _TOPIC_CONFIG or (one.config_source < 0 and not one.is_default))
            }
        return found, failed

    def ends(self, keys: Collection[TopicPartition]) -> tuple[dict[TopicPartition, SourceEnds], dict[TopicPartition, Failed]]:
        failed: dict[TopicPartition, Failed] = {}
        stable = self._offsets(keys, LATEST, READ_COMMITTED, failed)
        end = self._offsets(stable, LATEST, READ_UNCOMMITTED, failed)
        start = self._offsets(end, EARLIEST, READ_UNCOMMITTED, failed)
        leaders = self._leaders(start, failed)
        found = {
            key: SourceEnds(start[key], min(stable[key], end[key]), max(end[key], start[key]), leader.epoch)
            for key, leader in leaders.items()
        }
        return found, failed

    def missing(self, keys: Collection[TopicPartition]) -> list[Failed]:
        return []  # Brokers do not report this.

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}

        def make(connection: Connection, keys: list[TopicPartition]) -> tuple[Message, int]:
            version = connection.version(OffsetForLeaderEpochRequest, newest=_EPOCH_VERSION)
            by_topic: dict[str, list[OffsetForLeaderPartition]] = {}
            for key in keys:
                asked = OffsetForLeaderPartition(
                    partition=key.partition,
                    current_leader_epoch=self.cluster.leader(key).epoch,
                    leader_epoch=epochs[key],
                )
                by_topic.setdefault(key.topic, []).append(asked)
            topics = [OffsetForLeaderTopic(topic=topic, partitions=asked) for topic, asked in by_topic.items()]
            return OffsetForLeaderEpochRequest(topics=topics), version

        def read(
            answer: OffsetForLeaderEpochResponse, keys: list[TopicPartition], place: BrokerAddress
        ) -> dict[TopicPartition, TidelogError]:
            failed: dict[TopicPartition, TidelogError] = {}
            for topic in answer.topics:
                for one in topic.partitions:
                    key = TopicPartition(topic.topic, one.partition)
                    if one.error_code in RETRIABLE:
                        failed[key] = error_for(one.error_code, f"leader epoch of {names.log_dir_name(*key)}", place)
                    elif one.error_code:
                        raise error_for(one.error_code, f"leader epoch of {names.log_dir_name(*key)}", place)
                    elif one.end_offset >= 0:
                        found[key] = one.end_offset
            return failed

        # If the topic has been deleted meanwhile, reading it raises the error.
        wanted = self._leaders([key for key, epoch in epochs.items() if epoch >= 0], {})
        if wanted:
            with suppress(UnsupportedVersionError):  # Before 0.11 brokers do not report this.
                try:
                    self.cluster.ask_leaders(wanted, OffsetForLeaderEpochResponse, make, read)
                except UnknownTopicOrPartitionError:
                    wanted = self._leaders(wanted, {})
                    self.cluster.ask_leaders(wanted, OffsetForLeaderEpochResponse, make, read)
        return found

    def read(self, key: TopicPartition, start_offset: int, end_offset: int) -> Iterator[FoundBatch]:
        try:
            cluster = self._idle.pop()
        except IndexError:
            cluster = self._reach()
        memory = bytearray()

        def allocate(size_bytes: int) -> memoryview:
            # Each response is processed before the next one is received, so its memory is reused: new memory is slow.
            nonlocal memory
            if len(memory) < size_bytes:
                memory = bytearray(size_bytes)
            return memoryview(memory)[:size_bytes]

        try:
            for header, records, at in _StoredBatches(cluster, key, start_offset, end_offset, allocate=allocate):
                yield FoundBatch(header, records[at : at + header.size], False)
        finally:
            self._idle.append(cluster)

    def rights(self) -> dict[str, Any]:
        return describe_rights(self.cluster)

    def close(self) -> None:
        for cluster in (self.cluster, *self._idle):
            cluster.close()

    def _offsets(
        self, keys: Collection[TopicPartition], target: int, isolation: Isolation, failed: dict[TopicPartition, Failed]
    ) -> dict[TopicPartition, int]:
        """Return the requested offset of each partition. Add partitions without a response to `failed`."""
        found: dict[TopicPartition, int] = {}

        def ask(some: list[TopicPartition]) -> None:
            for key, answer in list_offsets(self.cluster, dict.fromkeys(some, target), isolation).items():
                if isinstance(answer, NotFound):
                    error = error_for(ErrorCode.OFFSET_NOT_AVAILABLE, "the end of a partition", self.cluster)
                    failed[key] = Failed(names.log_dir_name(*key), error)
                else:
                    found[key] = answer.offset

        for some in self._by_leader(keys, failed):
            try:
                ask(some)
            except UnsupportedVersionError:
                if isolation != READ_COMMITTED:
                    raise
                found |= self._offsets(some, target, READ_UNCOMMITTED, failed)  # Before 0.11 there are no transactions.
            except TidelogError as error:
                self._ask_again(some, ask, error, failed)
        return found

    def _by_leader(self, keys: Collection[TopicPartition], failed: dict[TopicPartition, Failed]) -> list[list[TopicPartition]]:
        by_leader: dict[int, list[TopicPartition]] = {}
        for key, leader in self._leaders(keys, failed).items():
            by_leader.setdefault(leader.node_id, []).append(key)
        for key in by_leader.pop(NO_LEADER, ()):
            failed[key] = Failed(names.log_dir_name(*key), no_leader(key, self.cluster))
        return list(by_leader.values())

    def _leaders(self, keys: Collection[TopicPartition], failed: dict[TopicPartition, Failed]) -> dict[TopicPartition, Leader]:
        """Return the known leaders. Partitions of topics that were deleted meanwhile are added to `failed`."""
        found: dict[TopicPartition, Leader] = {}
        for key in keys:
            try:
                found[key] = self.cluster.leader(key)
            except UnknownTopicOrPartitionError as error:
                failed[key] = Failed(names.log_dir_name(*key), error)
        return found

    def _ask_again(
        self,
        keys: list[TopicPartition],
        ask: Callable[[list[TopicPartition]], None],
        error: TidelogError,
        failed: dict[TopicPartition, Failed],
    ) -> None:
        """Repeat a request that failed as a whole, so that one partition does not make the others fail. Partitions without a
        leader are left out. If access was denied or a topic no longer exists, topics are requested one at a time. Unreachable
        leaders are not asked again, because the first attempt has used up their time.
        """
        again: list[list[TopicPartition]] = []
        if isinstance(error, BrokerError) and error.error_code in RETRIABLE:
            again = self._by_leader(keys, failed)
        elif isinstance(error, BrokerError | UnknownTopicOrPartitionError):
            topics = {key.topic for key in keys}
            again = [[key for key in keys if key.topic == topic] for topic in topics] if len(topics) > 1 else []
        asked = [key for some in again for key in some]
        failed.update((key, Failed(names.log_dir_name(*key), error)) for key in keys if key not in failed and key not in asked)
        for some in again:
            try:
                ask(some)
            except TidelogError as reason:
                failed.update((key, Failed(names.log_dir_name(*key), reason)) for key in some)
