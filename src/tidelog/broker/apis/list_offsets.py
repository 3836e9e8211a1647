"""ListOffsets (2): returns the offset for a timestamp.

Tiered storage is not supported. While a new leader's high watermark is below the start of its epoch, a consumer that requests
LATEST, or a time for which no record is found, gets OFFSET_NOT_AVAILABLE, or LEADER_NOT_AVAILABLE before version 5 (KIP-207). A
follower answers only replica id -2, which debugging tools use. Followers of Kafka 4.2 and later send version 11 even if the
broker does not announce this version.

| timestamp | since | offset | timestamp in the answer | epoch in the answer |
|---|---|---|---|---|
| -1, LATEST | 0 | the bound of what the client may read | -1 | the leader's |
| -2, EARLIEST | 0 | log start | -1 | of the batch there |
| -3, MAX_TIMESTAMP | 7 | the first record with the largest timestamp | the record's | of its batch |
| -4, EARLIEST_LOCAL | 8 | log start | -1 | of the batch there |
| -5, LATEST_TIERED | 9 | -1 | -1 | -1 |
| -6, EARLIEST_PENDING_UPLOAD | 11 | -1 | -1 | -1 |
| a time | 0 | the first record at or after that time | the record's | of its batch |
| any other negative value, or one that the version lacks | | UNSUPPORTED_VERSION | | |

If no record is at or after the time, or the first such record is beyond what the client may read, then offset, timestamp and
epoch are -1, without an error. A consumer reads up to the high watermark, or up to the last stable offset with read_committed;
replicas read up to the log end. Where Kafka would wrongly answer "none", the search continues: see
`storage.partition.offset_lookup`. Topics of message format v0 support only -1 and -2; all other timestamps get
UNSUPPORTED_FOR_MESSAGE_FORMAT.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Generator, Mapping
from typing import Any

from tidelog.broker.handling.access import allows, each
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.quotas.answer_room import AnswerRoom, no_room
from tidelog.broker.requests.request import Outcome, Request
from tidelog.broker.requests.slices import Elsewhere, Work
from tidelog.broker.requests.wide_requests import AT_ONCE, discarded
from tidelog.errors import TidelogError
from tidelog.formats.non_blocking_read import NotCachedError, non_blocking
from tidelog.model import (
    EARLIEST,
    EARLIEST_LOCAL,
    ISOLATION_LEVELS,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    READ_COMMITTED,
    TopicPartition,
)
from tidelog.security.acl import Operation, ResourceType
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partition.watermarks import FetchIsolation
from tidelog.wire.error_codes import ErrorCode, error_code_of
from tidelog.wire.fields import Versions
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

ACCESS = each(
    Operation.DESCRIBE,
    ResourceType.TOPIC,
    of="topics",
    name="name",
    refused=lambda topic, code: ListOffsetsTopicResponse(
        topic.name, [ListOffsetsPartitionResponse(one.partition_index, code) for one in topic.partitions]
    ),
    response=ListOffsetsResponse,
    into="topics",
)

logger = logging.getLogger("tidelog.broker")

EARLIEST_PENDING_UPLOAD = -6

SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
"""The first version in which each special timestamp is known."""

CONSUMER = -1
_STARTS = (EARLIEST, EARLIEST_LOCAL)
_ENDS = (LATEST, EARLIEST)
DEBUGGER = -2
"""The replica id of debugging tools, which non-leaders also answer."""
_FIRST_WITH_EPOCHS = 4
_FIRST_WITH_NOT_AVAILABLE = 5
OFFSET_BYTES = 40
"""The memory that one offset in a version 0 response takes, in bytes."""

_SOON_SEEN = 1024
"""A request for one topic with up to this many partitions is checked for duplicates in one step."""


def handle(node: Node, message: ListOffsetsRequest, request: Request) -> ListOffsetsResponse | Outcome:
    """Return the offset for each partition's timestamp, or LATER if the look-ups take several slices."""
    answer = node.slices.answer(request, _Lookups(node, message, request.api_version).work())
    assert isinstance(answer, ListOffsetsResponse | Outcome)
    return answer


class _Lookups:
    """The offset look-ups of one request."""

    def __init__(self, node: Node, message: ListOffsetsRequest, version: int) -> None:
        self._node = node
        self._message = message
        self._version = version
        self._is_consumer = message.replica_id == CONSUMER
        leadership = node.leadership
        self._refusal = leadership.reading_refusal if message.replica_id == DEBUGGER else leadership.refusal
        self._isolation = _isolation(message.isolation_level) if self._is_consumer else FetchIsolation.LOG_END
        self._room = AnswerRoom()
        self._twice: Container[tuple[str, int]] = ()

    def work(self) -> Work:
        message = self._message
        if self._version and not self._names_each_once():
            yield from self._find_what_is_named_twice()
        logs = self._node.manager.logs
        done: list[ListOffsetsTopicResponse] = []
        count = 0
        for topic in message.topics:
            answered = ListOffsetsTopicResponse(topic.name)
            done.append(answered)
            for wanted in topic.partitions:
                answer = None
                while answer is None:
                    try:
                        answer = self._answer(topic.name, wanted, logs)
                    except NotCachedError as missing:
                        yield missing
                answered.partitions.append(answer)
                count += 1
                if not count % 8:
                    yield None
        if count > AT_ONCE:
            yield from discarded(message)
        return ListOffsetsResponse(0, done)

    def _names_each_once(self) -> bool:
        """Return True if the request is small and names no partition twice. Otherwise `_find_what_is_named_twice` must check."""
        topics = self._message.topics
        if len(topics) != 1:
            return not topics
        partitions = topics[0].partitions
        count = len(partitions)
        return count <= _SOON_SEEN and (count == 1 or len({one.partition_index for one in partitions}) == count)

    def _find_what_is_named_twice(self) -> Generator[Elsewhere | None, None, None]:
        """Find the partitions that the request names more than once. They get an error instead of an offset."""
        seen: set[tuple[str, int]] = set()
        twice: set[tuple[str, int]] = set()
        count = 0
        for topic in self._message.topics:
            for partition in topic.partitions:
                name = (topic.name, partition.partition_index)
                (twice if name in seen else seen).add(name)
                count += 1
                if not count % 256:
                    yield None
        self._twice = twice
        if count > AT_ONCE:
            yield from discarded(None, seen)

    def _answer(
        self, topic: str, wanted: ListOffsetsPartition, logs: Mapping[TopicPartition, PartitionLog]
    ) -> ListOffsetsPartitionResponse:
        answer = ListOffsetsPartitionResponse(wanted.partition_index)
        key = TopicPartition(topic, wanted.partition_index)
        timestamp = wanted.timestamp
        if not 0 <= self._message.isolation_level <= 1:
            answer.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
        elif key in self._twice:
            answer.error_code = ErrorCode.INVALID_REQUEST
        elif timestamp < 0 and self._version < SINCE.get(timestamp, 1 << 15):
            answer.error_code = ErrorCode.UNSUPPORTED_VERSION
        else:
            try:
                # Unlike in Fetch, only -1 means no epoch: any other epoch that is too small gets FENCED_LEADER_EPOCH.
                refusal = self._refusal(key, wanted.current_leader_epoch)
                if refusal:
                    answer.error_code = refusal
                elif self._version == 0 and self._room.is_used_up:
                    answer.error_code = no_room().code
                elif self._version == 0:
                    offsets = self._legacy_offsets(logs[key], timestamp, wanted.max_num_offsets)
                    answer.old_style_offsets = offsets
                    self._room.use(OFFSET_BYTES * len(offsets))
                else:
                    found = _look_up(self._node, logs[key], timestamp, self._isolation, self._version)
                    answer.error_code, answer.timestamp, answer.offset, answer.leader_epoch = found
            except NotCachedError:
                raise
            except TidelogError as error:
                answer.error_code = error_code_of(error)
                if answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR:
                    logger.error("%s-%d: could not look up the offset for timestamp %d: %s", *key, timestamp, error)
            except Exception:
                answer.error_code = ErrorCode.UNKNOWN_SERVER_ERROR
                logger.exception("%s-%d: could not look up the offset for timestamp %d", *key, timestamp)
        return answer

    def _legacy_offsets(self, log: PartitionLog, timestamp: int, max_offsets: int) -> list[int]:
        offsets = log.legacy_fetch_offsets_before(timestamp, max_offsets)
        high_watermark = log.high_watermark
        if self._is_consumer and offsets and offsets[0] > high_watermark:
            return [high_watermark, *(offset for offset in offsets if offset <= high_watermark)]
        return offsets


def _isolation(level: int) -> FetchIsolation:
    """Return where a consumer with this isolation level stops reading: at the high watermark or the last stable offset."""
    return FetchIsolation.TXN_COMMITTED if level == ISOLATION_LEVELS[READ_COMMITTED] else FetchIsolation.HIGH_WATERMARK


def _look_up(node: Node, log: PartitionLog, timestamp: int, isolation: FetchIsolation, version: int) -> tuple[int, int, int, int]:
    """Return (error code, timestamp, offset, leader epoch) for a time or a special timestamp. If there is no offset, the last
    three are -1.
    """
    if timestamp == EARLIEST_PENDING_UPLOAD:
        timestamp = LATEST_TIERED  # Without tiered storage there is neither offset.
    leadership = node.leadership
    found = log.fetch_offset_for_timestamp(timestamp, isolation)
    is_consumer = isolation is not FetchIsolation.LOG_END
    if is_consumer and (timestamp == LATEST or found is None) and leadership.check_latest_known(log):
        is_known = version >= _FIRST_WITH_NOT_AVAILABLE
        return ErrorCode.OFFSET_NOT_AVAILABLE if is_known else ErrorCode.LEADER_NOT_AVAILABLE, -1, -1, -1
    if found is None:
        return 0, -1, -1, -1
    at_ms, offset, epoch = found
    if version < _FIRST_WITH_EPOCHS:
        epoch = -1
    elif timestamp == LATEST:
        _, epoch = leadership.leader_of(log.topic_partition)
    elif epoch < 0 and timestamp in _STARTS:
        epoch = leadership.epoch_at_start(log, epoch)
    return 0, at_ms, offset, epoch


def answer_usual(node: Node, request: Request, row: list[Any]) -> list[Any] | None:
    """Answer a consumer that asks for times, or for starts or ends of logs, if this broker leads all of the partitions. Return
    None for any other request.
    """
    replica_id, isolation_level, topics, _ = row
    version = request.api_version
    if not version or replica_id != CONSUMER or not 0 <= isolation_level <= 1:
        return None
    isolation = _isolation(isolation_level)
    logs, refusal = node.manager.logs, node.leadership.refusal
    answered = []
    try:
        with non_blocking():
            for name, partitions in topics:
                of_topic: list[list[Any]] = []
                answered.append([name, of_topic])
                if len(partitions) > 1 and len({one[0] for one in partitions}) != len(partitions):
                    return None
                for index, epoch, timestamp, _ in partitions:
                    log = logs.get((name, index))  # type: ignore[call-overload]
                    if log is None or (timestamp < 0 and timestamp not in _ENDS) or refusal(log.topic_partition, epoch):
                        return None
                    code, at_ms, offset, its_epoch = _look_up(node, log, timestamp, isolation, version)
                    of_topic.append([index, code, (), at_ms, offset, its_epoch])
    except Exception:
        return None  # Bytes must be read from disk, or the look-up failed: the request is decoded and handled by `handle`.
    names = [topic[0] for topic in topics]
    if len(set(names)) != len(names) or not allows(node, request, (Operation.DESCRIBE, ResourceType.TOPIC, names)):
        return None
    return [0, answered]


API = Api(ListOffsetsRequest, ListOffsetsResponse, Versions(0, 11), ACCESS, handle, answer_usual)
