"""DeleteRecords (21): moves the log start of partitions to a later offset (KIP-107).

| offset | answer |
|---|---|
| -1 | the log start moves to the high watermark |
| between log start and high watermark | the log start moves there |
| below the log start | nothing changes; the response has the current log start |
| any other | OFFSET_OUT_OF_RANGE |

The response is sent once all live replicas have moved their log start, and reports the lowest log start among them. A partition
whose replicas take longer than `timeout_ms` gets REQUEST_TIMED_OUT. A standalone broker does not wait.

A topic whose cleanup.policy is only `compact` gets POLICY_VIOLATION, an internal topic INVALID_TOPIC_EXCEPTION. If a request
names a partition twice, the last offset counts. The next retention check deletes the files.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tidelog.broker.handling.access import each
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.api_error import ApiError, api_error_of
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Until, Work, elements, grouped, slowly
from tidelog.broker.requests.wide_requests import discarded
from tidelog.model import INTERNAL_TOPICS, TopicPartition
from tidelog.security.acl import Operation, ResourceType
from tidelog.storage.partition.removals import HIGH_WATERMARK
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

ACCESS = each(
    Operation.DELETE,
    ResourceType.TOPIC,
    of="topics",
    name="name",
    refused=lambda topic, code: DeleteRecordsTopicResult(
        topic.name, [DeleteRecordsPartitionResult(one.partition_index, -1, code) for one in topic.partitions]
    ),
    response=DeleteRecordsResponse,
    into="topics",
)

NO_LOW_WATERMARK = -1


def handle(node: Node, message: DeleteRecordsRequest, request: Request) -> Work:
    wanted: dict[TopicPartition, int] = {}
    for topic, one in elements(message.topics):
        wanted[TopicPartition(topic.name, one.partition_index)] = one.offset
        if len(wanted) % 256 == 255:
            yield None
    waiting = _Waiting()
    results = ((key.topic, _delete(node, key, offset, message.timeout_ms, waiting)) for key, offset in wanted.items())
    topics = yield from grouped(results, 16)
    if waiting.left:
        yield Until(waiting.begin)
    yield from discarded(None, wanted)
    return DeleteRecordsResponse(
        topics=(yield from slowly((DeleteRecordsTopicResult(name=name, partitions=done) for name, done in topics.items()), 256))
    )


class _Waiting:
    """The partitions of a request whose other replicas have not yet moved their log start."""

    def __init__(self) -> None:
        self.left = 0
        self._over: Callable[[object], None] | None = None

    def begin(self, over: Callable[[object], None]) -> None:
        """Begin to wait. `over` is called once each partition has a result: its replicas have moved their log start, or
        failed to.
        """
        self._over = over

    def done(self, answer: DeleteRecordsPartitionResult, code: ErrorCode, low_watermark: int) -> None:
        """Store a partition's result in `answer`. If it is the last one, end the wait."""
        answer.error_code, answer.low_watermark = code, low_watermark
        self.left -= 1
        if not self.left and self._over is not None:
            self._over(None)


def _delete(node: Node, key: TopicPartition, offset: int, timeout_ms: int, waiting: _Waiting) -> DeleteRecordsPartitionResult:
    answer = DeleteRecordsPartitionResult(partition_index=key.partition, low_watermark=NO_LOW_WATERMARK)
    try:
        wanted = _delete_records(node, key, offset)
    except Exception as error:
        answer.error_code = api_error_of(error).code
        return answer
    waiting.left += 1
    done = partial(waiting.done, answer)
    low_watermark = node.leadership.when_low_watermark(node.manager.log(*key), wanted, timeout_ms, done)
    if low_watermark is not None:
        done(ErrorCode.NONE, low_watermark)
    return answer


def _delete_records(node: Node, key: TopicPartition, offset: int) -> int:
    """Move the log start on this broker. Return the offset to which all replicas must move theirs. Raises ApiError, and what
    `PartitionLog.delete_records` raises.
    """
    refusal = node.leadership.refusal(key)
    if key.topic in INTERNAL_TOPICS and refusal is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if refusal:
        raise ApiError(refusal)
    log = node.manager.log(*key)
    if not log.config.is_deleted:
        raise ApiError(ErrorCode.POLICY_VIOLATION)
    begin = log.delete_records(offset)
    node.delayed_fetches.appended(key)
    return begin if offset == HIGH_WATERMARK else offset


API = Api(DeleteRecordsRequest, DeleteRecordsResponse, Versions(0, 2), ACCESS, handle)
