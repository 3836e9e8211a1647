"""A compacted internal topic as a table: where coordinators keep what they know, and find it again after a start.

| | |
|---|---|
| ``__consumer_offsets`` | of `groups` |
| ``__transaction_state`` | of `transactions` |

All records of an id (a group's, a transactional id's) lie in one partition, which Kafka finds by the hash of the name; a key's
last record counts, one without a value deletes it. Here as there the topic is made when somebody first asks for a coordinator.
One that was found in the folder without a configuration gets Kafka's when something is first written to it: it is compacted then.

What is appended is known to be kept once `append` returns: there is one replica. Where it is to be flushed, too, the client is
answered after that (`coordinated`). Loading reads on other threads, and a partition
that is not loaded yet, or cannot be, has no coordinator; nothing is appended to it until then.
"""

from __future__ import annotations

import logging
from array import array
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from tidelog.broker.server.slices import Elsewhere, Until
from tidelog.broker.topic_changes import Job
from tidelog.config import PropertyValue
from tidelog.errors import RecordTooLargeError, TidelogError
from tidelog.groups.offsets_topic import java_hash
from tidelog.model import TopicPartition
from tidelog.records.batch import iter_headers
from tidelog.records.builder import NO_PRODUCER, Producer, binary_column, build_batch_v2_from_columns
from tidelog.records.compression import Codec
from tidelog.records.state_batches import Entry, StateBatch, state_batches
from tidelog.records.validation import AppendOrigin
from tidelog.storage.partition.log_flusher import Flushed
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.steps import Steps
from tidelog.wire.error_codes import ErrorCode, error_code_of
from tidelog.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig

if TYPE_CHECKING:
    from tidelog.broker.node import Node

T = TypeVar("T")

logger = logging.getLogger("tidelog.broker")

READ_BYTES = 1 << 20
"""So much is read at once while loading; a larger batch comes whole."""

TOMBSTONES_AT_ONCE = 1000
"""A batch of more might be larger than the topic takes."""

_REFUSAL_CODES = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


class TopicMissingError(Exception):
    """The topic is to be made before a request is answered."""


class StateLog:
    """One internal topic of a coordinator, read and appended to. `properties` are the topic's own, `replication_factor` what the
    broker is configured to give it.
    """

    def __init__(
        self,
        node: Node,
        topic: str,
        *,
        partitions: int,
        replication_factor: int,
        properties: Mapping[str, PropertyValue],
        codec: Codec = Codec.NONE,
    ) -> None:
        self.topic = topic
        self._node = node
        self._partitions = partitions
        self._replication_factor = replication_factor
        self._properties = properties
        self._codec = codec
        self._loading: set[int] = set()
        self._failed: set[int] = set()
        self._load_again: Callable[[int, PartitionLog], object] | None = None
        self._may_be_missing = False
        self.unflushed: set[int] = set()
        """Partitions that somebody has written to, and that are to be flushed; `coordinated` clears it before each request."""

    # --- asking

    @property
    def partitions(self) -> int:
        """How many partitions the topic has, or will have. Of a cluster's topic a folder may have some: the last one says."""
        view = self._node.topics.get(self.topic)
        return self._partitions if view is None else view.partitions[-1].partition + 1

    @property
    def creatable(self) -> CreatableTopic:
        """How a controller is to create the topic where it is missing."""
        configs = [CreatableTopicConfig(name, str(value)) for name, value in self._properties.items()]
        return CreatableTopic(self.topic, self._partitions, self._replication_factor, configs=configs)

    def partition_of(self, identity: str) -> int:
        """Return the partition that keeps what belongs to an id."""
        return abs(java_hash(identity)) % self.partitions

    def readiness(self, partition: int) -> ErrorCode:
        """Return NONE if the partition's table is known, else why there is no coordinator."""
        if partition in self._loading:
            return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        if partition in self._failed or self._log(partition) is None:
            return ErrorCode.NOT_COORDINATOR
        return ErrorCode.NONE

    @property
    def is_loading(self) -> bool:
        """Whether any partition's table is not known yet."""
        return bool(self._loading)

    def key(self, partition: int) -> TopicPartition:
        """Return the topic's name with a partition."""
        return TopicPartition(self.topic, partition)

    # --- writing

    def check_there(self) -> None:
        """Raise TopicMissingError where the topic is to be made first, which is tried once a request (`coordinated`)."""
        if not self._may_be_missing:
            raise TopicMissingError

    def without_topic(self, handle: Callable[[], T]) -> T:
        """Return what `handle` returns where the topic is missing, and cannot be made."""
        self._may_be_missing = True
        try:
            return handle()
        finally:
            self._may_be_missing = False

    def ensuring(self) -> Generator[Elsewhere | Until | None, Any, ErrorCode]:
        """Create the topic if it is missing; NONE, or COORDINATOR_NOT_AVAILABLE where that fails, which is logged."""
        if self._node.topics.get(self.topic) is not None:
            return ErrorCode.NONE
        code: ErrorCode
        (code,) = yield from self._node.topic_changes.side_by_side([Job(self.topic, self.making())])
        return code

    def making(self) -> Steps[ErrorCode]:
        """Do the same in steps of their own."""
        if self._node.topics.get(self.topic) is not None:
            return ErrorCode.NONE
        if self._replication_factor > 1:
            logger.error(
                "%s is not created: it is to have %d replicas, and there is one broker", self.topic, self._replication_factor
            )
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        try:
            yield from self._node.topics.creation(self.topic, self._partitions, self._properties)
        except TidelogError as error:
            logger.error("%s is not created: %s", self.topic, error)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        return ErrorCode.NONE

    def check_size(self, partition: int, size_bytes: int) -> None:
        """Raise RecordTooLargeError, UnknownTopicOrPartitionError, where so many bytes are refused anyway."""
        if self._codec is Codec.NONE and size_bytes > self._node.manager.log(self.topic, partition).config.max_message_bytes:
            raise RecordTooLargeError("a group's record is larger than max.message.bytes", found=f"at least {size_bytes}")

    def append(
        self, partition: int, entries: Sequence[Entry], *, producer: Producer = NO_PRODUCER, is_transactional: bool = False
    ) -> int:
        """Append entries as one batch, and return the first one's offset.

        Raises what `PartitionLog.append_as_leader` raises, UnknownTopicOrPartitionError.
        """
        return self.append_batch(partition, self.build(entries, producer=producer, is_transactional=is_transactional))

    def build(self, entries: Sequence[Entry], *, producer: Producer = NO_PRODUCER, is_transactional: bool = False) -> bytearray:
        """Build a batch of entries, for `append_batch`. On any thread."""
        now_ms = self._node.clock.now_ms()
        return build_batch_v2_from_columns(
            array("q", (now_ms,)) * len(entries),
            binary_column([key for key, _ in entries]),
            binary_column([value for _, value in entries]),
            base_offset=0,
            codec=self._codec,
            producer=producer,
            is_transactional=is_transactional,
        ).data

    def append_batch(self, partition: int, batch: bytearray) -> int:
        """Append a batch that was built, and return its offset. Raises as `append`."""
        key = self.key(partition)
        if not self._node.manager.is_configuration_known(self.topic):
            self._configure()
        log = self._node.manager.log(self.topic, partition)
        info = log.append_as_leader(batch, self._node.leader_epoch(key), origin=AppendOrigin.COORDINATOR)
        if log.is_flush_awaited:
            self.unflushed.add(partition)
        self._node.leadership.appended(log)
        return info.first_offset

    @property
    def is_flushing(self) -> bool:
        """Whether anything that was written here may not be on the disk, although it is to be."""
        return self._node.flushes.pending > 0

    def when_flushed(self, partition: int, callback: Flushed) -> None:
        """Have `callback` called once what a partition holds is on the disk, if it is to be flushed; with whether that failed."""
        log = self._node.manager.logs.get(self.key(partition))
        if log is None:
            callback(True)
        else:
            log.when_flushed(callback)

    def _configure(self) -> None:
        """Have the topic get its properties, on another thread; until then it keeps everything."""
        changes = self._node.topic_changes
        if not changes.is_changing(self.topic):
            changes.begin(Job(self.topic, self._node.topics.configuration(self.topic, self._properties)), self._configured)

    def _configured(self, result: object) -> None:
        if isinstance(result, Exception):
            logger.error("%s keeps everything: %s", self.topic, result)

    # --- loading

    def load(self, read: Callable[[Iterator[StateBatch]], T], install: Callable[[int, T], object]) -> None:
        """Load every partition that holds something: `read` makes something of its batches on another thread, `install` takes it.

        Called once, before anything was appended. A partition that cannot be read has no coordinator; that is logged.
        """
        self._load_again = lambda partition, log: self._load(partition, log, read, install)
        for key in self._node.manager.partitions_of(self.topic):
            log = self._node.manager.logs.get(key)
            if log is None:
                self._failed.add(key.partition)  # It is offline: when it is back, its table is to be read first.
            elif log.log_start_offset < log.log_end_offset:
                self._load(key.partition, log, read, install)

    def on_return(self, log: PartitionLog) -> None:
        """Load a partition that was offline when the others were loaded, or could not be read."""
        key = log.topic_partition
        if key.topic == self.topic and key.partition in self._failed and self._load_again is not None:
            self._failed.discard(key.partition)
            self._load_again(key.partition, log)

    def forget(self) -> None:
        """Start over: the topic was deleted."""
        self._loading.clear()
        self._failed.clear()

    def _load(
        self, partition: int, log: PartitionLog, read: Callable[[Iterator[StateBatch]], T], install: Callable[[int, T], object]
    ) -> None:
        self._loading.add(partition)
        start, end = log.log_start_offset, log.log_end_offset

        def done(result: T | BaseException) -> None:
            if partition not in self._loading:
                return  # The topic is gone.
            if isinstance(result, BaseException):
                logger.error("%s-%d has no coordinator: it cannot be read: %s", self.topic, partition, result)
                self._failed.add(partition)
                self._loading.discard(partition)
                return
            # The caller that installs may append already.
            self._loading.discard(partition)
            install(partition, result)

        self._node.blocking.run(lambda: read(read_batches(log, start, end)), done)

    def _log(self, partition: int) -> PartitionLog | None:
        # A pair is as good as a TopicPartition, and sooner made: each request of a group comes by here.
        log = self._node.manager.logs.get((self.topic, partition))  # type: ignore[call-overload]
        return None if log is None or log.is_offline else log


def refusal(error: TidelogError) -> ErrorCode:
    """Return what a client gets where `StateLog.append` raised: of the log, it need not know."""
    code = error_code_of(error)
    return _REFUSAL_CODES.get(code, code)


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
