"""A compacted internal topic in which a coordinator stores its state as a table: ``__consumer_offsets`` for `groups`,
``__transaction_state`` for `transactions`.

All records of an id (a group or a transactional id) are in one partition, chosen by the hash of the id as in Kafka. The last
record of a key counts; a record without a value deletes the key. As in Kafka, the first request for a coordinator creates the
topic. If the topic has no configuration, the first write sets Kafka's configuration, so that the topic is compacted.

An appended record changes the table at once, but clients see the change only once the record is committed: flushed, if the
configuration requires that, and on all in-sync replicas (`coordinator_handlers` delays responses until then). When another broker
becomes the leader, the table is dropped.

A standalone broker loads all partitions at startup. A cluster member loads each partition that it begins to lead (`lead`), and
drops it when it stops leading it (`resign`). Other threads read the logs. Until a partition is loaded, this broker does not act
as coordinator for it and appends nothing to it. The result of a load that began in an older leader epoch is ignored.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from tidelog.broker.coordinators.append_refusals import AppendRefusedError
from tidelog.broker.core import Core
from tidelog.broker.loop.retry_log import RetryLog
from tidelog.broker.partitions.leadership import Committed, Leadership
from tidelog.broker.requests.slices import Elsewhere, Until
from tidelog.broker.topics.topic_changes import Job, TopicChanges
from tidelog.broker.topics.topic_creation import TopicCreation
from tidelog.broker.topics.topics import Topics
from tidelog.config import INT64_MAX, PropertyValue
from tidelog.errors import RecordTooLargeError, TidelogError
from tidelog.groups.offsets_topic import java_hash
from tidelog.model import MAX_OFFSET, TopicPartition
from tidelog.records.batch import iter_headers
from tidelog.records.builder import NO_PRODUCER, Producer
from tidelog.records.compression import Codec
from tidelog.records.state_batches import Entry, StateBatch, build_state_batch, state_batches
from tidelog.records.validation import AppendOrigin
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.steps import Steps
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig

T = TypeVar("T")

logger = logging.getLogger("tidelog.broker")

READ_BYTES = 1 << 20
"""The number of bytes that are read at once while loading. A larger batch is read whole."""

COMMIT_TIMEOUT_MS = 30_000
"""Kafka's default request.timeout.ms of a broker."""

TOMBSTONES_AT_ONCE = 250
TOMBSTONE_BYTES = 256 * 1024
"""The most tombstones in one step, fewer if their keys are long: a larger batch might exceed the topic's limit."""


class TopicMissingError(Exception):
    """The topic must be created before the request is answered."""


class InternalTopic(NamedTuple):
    """A coordinator's topic, as the broker's configuration defines it."""

    name: str
    partitions: int
    replication_factor: int
    properties: Mapping[str, PropertyValue]
    """The properties that are set on the topic."""
    codec: Codec = Codec.NONE
    """The compression codec of the batches written to it."""
    commit_timeout_ms: int = COMMIT_TIMEOUT_MS
    """How long a response waits until the other replicas have the records, in ms."""

    @property
    def creatable(self) -> CreatableTopic:
        """Return the CreateTopics entry with which a controller creates the topic."""
        configs = [CreatableTopicConfig(name, str(value)) for name, value in self.properties.items()]
        return CreatableTopic(self.name, self.partitions, self.replication_factor, configs=configs)


def chunks(what: Iterable[T], key_bytes: Callable[[T], int]) -> Iterator[list[T]]:
    """Split ids into lists whose tombstones fit into one batch. `key_bytes` returns an upper bound of a key's size."""
    chunk: list[T] = []
    left = TOMBSTONE_BYTES
    for one in what:
        size = key_bytes(one)
        if chunk and (len(chunk) == TOMBSTONES_AT_ONCE or size > left):
            yield chunk
            chunk, left = [], TOMBSTONE_BYTES
        chunk.append(one)
        left -= size
    if chunk:
        yield chunk


class StateLog:
    """The internal topic of one coordinator. In a cluster, `creation` requests the topic from the controllers."""

    def __init__(
        self,
        core: Core,
        leadership: Leadership,
        topics: Topics,
        changes: TopicChanges,
        creation: TopicCreation | None,
        wanted: InternalTopic,
    ) -> None:
        self.topic = wanted.name
        self.wanted = wanted
        self._core = core
        self._logs = core.manager.logs
        self._leadership = leadership
        self._topics = topics
        self._changes = changes
        self._creation = creation
        self._retries = RetryLog(logger)
        self._loads: dict[int, object] = {}
        """A token for each partition that is being loaded, which identifies the current load."""
        self._failed: set[int] = set()
        self._epochs: dict[int, int] | None = None if core.plane is None else {}
        """The leader epoch of each partition that this broker leads; None on a standalone broker."""
        self._begin: Callable[[int, PartitionLog], object] | None = None
        self._drop: Callable[[int], object] = lambda _: None
        self._refused: ErrorCode | None = None
        self.uncommitted: set[int] = set()
        """Partitions with uncommitted records that were read or written. `coordinator_handlers` clears this set."""

    # --- asking

    @property
    def partitions(self) -> int:
        """The number of partitions that the topic has, or will have. In a cluster the folder may have only some of them."""
        view = self._topics.get(self.topic)
        return self.wanted.partitions if view is None else view.partitions[-1].partition + 1

    @property
    def is_there(self) -> bool:
        """Whether the topic exists."""
        return self._topics.get(self.topic) is not None

    @property
    def leads_all(self) -> bool:
        """Whether this broker leads every partition, because it is standalone."""
        return self._epochs is None

    def epoch_of(self, partition: int) -> int | None:
        """Return the coordinator epoch of a partition, which is stored in its transaction markers; None on a standalone
        broker.
        """
        return None if self._epochs is None else self._epochs.get(partition, -1)

    def partition_of(self, identity: str) -> int:
        """Return the partition that stores an id."""
        return abs(java_hash(identity)) % self.partitions

    def leader_of(self, identity: str) -> int:
        """Return the broker that leads an id's partition."""
        return self._core.node_id if self.leads_all else self._topics.leader_of(self.topic, self.partition_of(identity))

    def code_for(self, identity: str) -> ErrorCode:
        """Return the `readiness` of an id's partition, or COORDINATOR_NOT_AVAILABLE if the topic could not be created.

        Raises TopicMissingError if the topic must be created first.
        """
        view = self._topics.get(self.topic)
        if view is None:
            self.check_there()
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return self.readiness(abs(java_hash(identity)) % (view.partitions[-1].partition + 1))

    def readiness(self, partition: int) -> ErrorCode:
        """Return NONE if the partition's table is loaded, otherwise the error code."""
        if self._refused is not None:
            return self._refused
        if partition in self._loads:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        log = self._log(partition)
        if log is None or partition in self._failed or (self._epochs is not None and partition not in self._epochs):
            return ErrorCode.NOT_COORDINATOR
        if log.watermarks.high_watermark < log.local.log_end_offset:
            self.uncommitted.add(partition)
        return ErrorCode.NONE

    @property
    def is_loading(self) -> bool:
        """Whether any partition's table is not loaded yet."""
        return bool(self._loads)

    def key(self, partition: int) -> TopicPartition:
        """Return the topic's name and a partition as a key."""
        return TopicPartition(self.topic, partition)

    # --- writing

    def check_there(self) -> None:
        """Raise TopicMissingError, so that `coordinator_handlers` creates the topic and handles the request again. Do nothing
        inside `refusing`: for this request, creating the topic has already failed.
        """
        if self._refused is None:
            raise TopicMissingError

    def refusing(self, code: ErrorCode, handle: Callable[[], T]) -> T:
        """Call `handle` as if the coordinator refused with `code`, and return its result. Such a call changes nothing."""
        self._refused = code
        try:
            return handle()
        finally:
            self._refused = None

    def ensuring(self) -> Generator[Elsewhere | Until | None, Any, ErrorCode]:
        """Create the topic if it is missing. Return NONE; if the creation fails, log that and return COORDINATOR_NOT_AVAILABLE.
        In a cluster, request the topic from the controller, and return COORDINATOR_NOT_AVAILABLE without waiting.
        """
        if self.is_there:
            return ErrorCode.NONE
        if self._creation is not None:
            self._creation.ask_own(self.topic)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        code: ErrorCode
        (code,) = yield from self._changes.side_by_side([Job(self.topic, self.making())])
        return code

    def making(self) -> Steps[ErrorCode]:
        """Create the topic on a standalone broker, in steps. Return NONE or COORDINATOR_NOT_AVAILABLE."""
        if self.is_there:
            return ErrorCode.NONE
        if self.wanted.replication_factor > 1:
            self._retries.error(
                "cannot create topic %s: it needs %d replicas, but there is only one broker",
                self.topic,
                self.wanted.replication_factor,
            )
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        try:
            yield from self._topics.creation(self.topic, self.wanted.partitions, self.wanted.properties)
        except TidelogError as error:
            self._retries.error("could not create topic %s: %s", self.topic, error)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

    def end_offset(self, partition: int) -> int:
        """Return the offset that the next record will get; the largest possible offset if nothing can be appended."""
        log = self._log(partition)
        return MAX_OFFSET if log is None else log.log_end_offset

    def check_size(self, partition: int, size_bytes: int) -> None:
        """Without compression, raise RecordTooLargeError or UnknownTopicOrPartitionError if so many bytes cannot be appended."""
        if (
            self.wanted.codec is Codec.NONE
            and size_bytes > self._core.manager.log(self.topic, partition).config.max_message_bytes
        ):
            raise RecordTooLargeError("a group's record is larger than max.message.bytes", found=f"at least {size_bytes}")

    def append(
        self, partition: int, entries: Sequence[Entry], *, producer: Producer = NO_PRODUCER, is_transactional: bool = False
    ) -> int:
        """Append entries as one batch, and return the first one's offset.

        Raises UnknownTopicOrPartitionError, and the errors of `PartitionLog.append_as_leader`.
        """
        return self.append_batch(partition, self.build(entries, producer=producer, is_transactional=is_transactional))

    def build(self, entries: Sequence[Entry], *, producer: Producer = NO_PRODUCER, is_transactional: bool = False) -> bytearray:
        """Build a batch of entries for `append_batch`. Any thread may call this."""
        return build_state_batch(
            entries, self._core.clock.now_ms(), self.wanted.codec, producer, is_transactional=is_transactional
        )

    def append_batch(self, partition: int, batch: bytearray) -> int:
        """Append a batch built by `build`, and return its offset. Raises the same errors as `append`."""
        key = self.key(partition)
        if not self._core.manager.is_configuration_known(self.topic):
            self._configure()
        leadership = self._leadership
        log = self._logs.get(key)
        if log is None:
            log = self._core.manager.log(*key)  # The call raises the right error.
        epoch = leadership.epoch_of(key)
        if self._epochs is not None and (epoch < 0 or self._epochs.get(partition) != epoch):
            raise AppendRefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        code = leadership.check_in_sync(log)
        if code:
            raise AppendRefusedError(code)
        info = log.append_as_leader(batch, epoch, origin=AppendOrigin.COORDINATOR)
        if not leadership.appended(log):
            self.uncommitted.add(partition)
        return info.first_offset

    def partition_at_once(self, identity: str) -> int | None:
        """Return the partition of an id if its table is loaded, and its records are committed as soon as they are appended: none
        is uncommitted now, this broker has the only replica, and no flush is needed (`flush.messages`). Otherwise return None.
        """
        view = self._topics.get(self.topic)
        if view is None or self.wanted.codec is not Codec.NONE:
            return None
        partition = abs(java_hash(identity)) % (view.partitions[-1].partition + 1)
        log = self._log(partition)
        if log is None or log.config.flush_messages != INT64_MAX or self.readiness(partition) or self.uncommitted:
            return None
        return partition if self._leadership.is_alone(log) else None

    @property
    def may_be_uncommitted(self) -> bool:
        """Whether records that this broker has written may be uncommitted."""
        return self._epochs is not None or self._core.flushes.pending > 0

    def when_committed(self, partition: int, done: Committed) -> None:
        """Call `done` with NONE once all current records of a partition are committed, or with an error code, possibly before
        this method returns.
        """
        log = self._core.manager.logs.get(self.key(partition))
        if log is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        elif self._leadership.when_committed(log, log.log_end_offset, self.wanted.commit_timeout_ms, done):
            done(ErrorCode.NONE)

    def _configure(self) -> None:
        """Give the topic its properties, on another thread. Until then none of its records are compacted or deleted."""
        changes = self._changes
        if not changes.is_changing(self.topic):
            changes.begin(Job(self.topic, self._topics.configuration(self.topic, self.wanted.properties)), self._configured)

    def _configured(self, result: object) -> None:
        if isinstance(result, Exception):
            logger.error("%s is not compacted, because its properties could not be set: %s", self.topic, result)

    # --- loading

    def load(
        self,
        read: Callable[[Iterator[StateBatch]], T],
        install: Callable[[int, T], object],
        drop: Callable[[int], object] = lambda _: None,
    ) -> None:
        """Set the functions that load partitions: another thread calls `read` with the batches, `install` stores the result, and
        `drop` removes it.

        Call this method once, before anything is appended. A standalone broker then starts to load all partitions that have
        records. If a partition cannot be read, that is logged, and its groups or transactional ids have no coordinator.
        """
        self._begin = lambda partition, log: self._load(partition, log, read, install)
        self._drop = drop
        if self._epochs is not None:
            return
        for key in self._core.manager.partitions_of(self.topic):
            log = self._core.manager.logs.get(key)
            if log is None:
                self._failed.add(key.partition)  # The partition is offline. It must be loaded when it is online again.
            elif log.log_start_offset < log.log_end_offset:
                self._load(key.partition, log, read, install)

    def lead(self, log: PartitionLog, epoch: int) -> None:
        """Load a partition that this broker begins to lead in the given leader epoch. Do nothing for other topics."""
        key = log.topic_partition
        if key.topic == self.topic and self._epochs is not None and self._begin is not None:
            self.resign(key)
            self._epochs[key.partition] = epoch
            logger.info("%s-%d: this broker is now the coordinator of this partition, epoch %d", *key, epoch)
            self._begin(key.partition, log)

    def resign(self, key: TopicPartition) -> None:
        """Drop a partition's table, because this broker no longer leads the partition. Do nothing for other topics."""
        if key.topic == self.topic and self._epochs is not None and self._epochs.pop(key.partition, None) is not None:
            self._loads.pop(key.partition, None)
            self._failed.discard(key.partition)
            self._drop(key.partition)

    def on_return(self, log: PartitionLog) -> None:
        """Load a partition that could not be loaded before, because it was offline or unreadable."""
        key = log.topic_partition
        if key.topic == self.topic and key.partition in self._failed and self._begin is not None:
            self._failed.discard(key.partition)
            self._begin(key.partition, log)

    def forget(self) -> None:
        """Forget all loads and failures, because the topic has been deleted."""
        self._loads.clear()
        self._failed.clear()

    def _load(
        self, partition: int, log: PartitionLog, read: Callable[[Iterator[StateBatch]], T], install: Callable[[int, T], object]
    ) -> None:
        this = self._loads[partition] = object()
        start, end = log.log_start_offset, log.log_end_offset

        def done(result: T | BaseException) -> None:
            if self._loads.get(partition) is not this:
                return  # The topic has been deleted, or another broker leads now.
            if isinstance(result, BaseException):
                logger.error("%s-%d has no coordinator, because the partition cannot be read: %s", self.topic, partition, result)
                self._failed.add(partition)
                del self._loads[partition]
                return
            # `install` may already append.
            del self._loads[partition]
            install(partition, result)

        self._core.blocking.run(lambda: read(read_batches(log, start, end)), done)

    def _log(self, partition: int) -> PartitionLog | None:
        # A plain tuple equals a TopicPartition and is faster to make.
        log = self._logs.get((self.topic, partition))  # type: ignore[call-overload]
        return None if log is None or log.is_offline else log


def read_batches(log: PartitionLog, start: int, end: int) -> Iterator[StateBatch]:
    """Yield the batches of a log in [start, end). Raises CorruptDataError, StorageError."""
    offset = start
    while offset < end:
        data = log.read(offset, READ_BYTES).data
        before = offset
        headers = []
        for header in iter_headers(data):
            if header.base_offset >= end:
                break
            offset = header.next_offset
            if header.last_offset >= start:
                headers.append(header)
        yield from state_batches(headers, data, log.directory)
        if offset == before:
            return
