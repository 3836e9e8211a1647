"""DeleteRecords (21): lets partitions begin at a later offset (KIP-107).

| offset | answer |
|---|---|
| -1 | the log begins at its high watermark |
| between log start and high watermark | the log begins there |
| below the log start | nothing happens; the answer says where it begins |
| any other | OFFSET_OUT_OF_RANGE |

A topic that is compacted only answers POLICY_VIOLATION, Kafka's own topics INVALID_TOPIC_EXCEPTION. Of a partition that a request
names twice, the last offset counts. Files go with the next retention check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.api import Api, Request
from tidelog.broker.refused import Refused, refusal_of
from tidelog.broker.server.slices import Work, elements, slowly
from tidelog.broker.server.wide_requests import discarded
from tidelog.model import INTERNAL_TOPICS, TopicPartition
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from tidelog.broker.node import Node

SERVED = Versions(0, 2)
"""What each version changed: the table of `tidelog.wire.messages.delete_records`."""

NO_LOW_WATERMARK = -1


def handle(node: Node, message: DeleteRecordsRequest, request: Request) -> Work:
    wanted: dict[TopicPartition, int] = {}
    for topic, one in elements(message.topics):
        wanted[TopicPartition(topic.name, one.partition_index)] = one.offset
        if len(wanted) % 256 == 255:
            yield None
    topics: dict[str, list[DeleteRecordsPartitionResult]] = {}
    for count, (key, offset) in enumerate(wanted.items()):
        topics.setdefault(key.topic, []).append(_delete(node, key, offset))
        if count % 16 == 15:
            yield None
    yield from discarded(None, wanted)
    return DeleteRecordsResponse(
        topics=(yield from slowly((DeleteRecordsTopicResult(name=name, partitions=done) for name, done in topics.items()), 256))
    )


def _delete(node: Node, key: TopicPartition, offset: int) -> DeleteRecordsPartitionResult:
    try:
        low_watermark = _delete_records(node, key, offset)
    except Exception as error:
        code = refusal_of(error).code
        return DeleteRecordsPartitionResult(partition_index=key.partition, low_watermark=NO_LOW_WATERMARK, error_code=code)
    return DeleteRecordsPartitionResult(partition_index=key.partition, low_watermark=low_watermark, error_code=ErrorCode.NONE)


def _delete_records(node: Node, key: TopicPartition, offset: int) -> int:
    """Return where the log begins then."""
    refusal = node.leadership.refusal(key)
    if key.topic in INTERNAL_TOPICS and refusal is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION)
    if refusal:
        raise Refused(refusal)
    log = node.manager.log(*key)
    if not log.config.is_deleted:
        raise Refused(ErrorCode.POLICY_VIOLATION)
    low_watermark = log.delete_records(offset)
    node.delayed_fetches.appended(key)
    return low_watermark


API = Api(DeleteRecordsRequest, DeleteRecordsResponse, SERVED, handle)
