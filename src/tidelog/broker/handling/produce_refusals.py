"""The access check of Produce, and results for records that are refused, either before the append or by the log.

The client must be authorized for each topic and, if it sends transactional records, for the transactional id. Records count as
transactional if their first batch is transactional.
"""

from __future__ import annotations

import logging
from collections import Counter
from typing import Final

from tidelog.broker.handling.access import Access, Amend, Asker, refusals
from tidelog.broker.node import Node
from tidelog.broker.partitions.header_check import HeaderCheck
from tidelog.broker.requests.request import Outcome
from tidelog.broker.topics.topics import NO_TOPIC_ID
from tidelog.errors import (
    CorruptBatchError,
    DecompressedTooLargeError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    RecordValidationError,
    StorageError,
    TidelogError,
)
from tidelog.model import INTERNAL_TOPICS, TopicPartition
from tidelog.records.batch import HEADER_BYTES, TRANSACTIONAL_BIT
from tidelog.records.compression import Bytes
from tidelog.security.acl import Operation, ResourceType
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.wire.error_codes import ErrorCode, error_code_of
from tidelog.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

logger = logging.getLogger("tidelog.broker")

ADMIN_CLIENT_ID: Final = "__admin_client"
"""A client with this client id may write to internal topics. Kafka's tools use this id."""

_WITHOUT_LOG_START = (CorruptBatchError, RecordTooLargeError, DecompressedTooLargeError, RecordBatchTooLargeError, StorageError)
_V2: Final = 2
_MAGIC: Final = 16
_ATTRIBUTES: Final = 22


# --- the access check


def _is_transactional(records: Bytes | None) -> bool:
    if records is None or len(records) <= HEADER_BYTES:
        return False
    return records[_MAGIC] == _V2 and bool(records[_ATTRIBUTES] & TRANSACTIONAL_BIT)


def _gate(asker: Asker, message: ProduceRequest) -> ProduceResponse | Outcome | Amend | None:
    topics = message.topic_data
    kind = ResourceType.TRANSACTIONAL_ID
    if any(_is_transactional(one.records) for topic in topics for one in topic.partition_data) and (
        message.transactional_id is None or not asker.may(Operation.WRITE, kind, message.transactional_id)
    ):
        return Outcome.CLOSE if message.acks == 0 else ProduceResponse([_refused(topic, asker.code(kind)) for topic in topics])
    kind = ResourceType.TOPIC
    denied = refusals(asker, Operation.WRITE, kind, Counter(topic.name for topic in topics))
    if not denied:
        return None
    answers = [_refused(topic, asker.code(kind)) for topic in topics if topic.name in denied]
    message.topic_data = left = [topic for topic in topics if topic.name not in denied]
    if not left:
        return Outcome.CLOSE if message.acks == 0 else ProduceResponse(answers)

    def amend(answer: ProduceResponse | Outcome) -> ProduceResponse | Outcome:
        if isinstance(answer, Outcome):
            return Outcome.CLOSE  # With acks=0 a closed connection is all that the producer can notice.
        answer.responses.extend(answers)
        return answer

    return amend


def _refused(topic: TopicProduceData, code: ErrorCode) -> TopicProduceResponse:
    return TopicProduceResponse(
        topic.name, NO_TOPIC_ID, [PartitionProduceResponse(one.index, code, -1) for one in topic.partition_data]
    )


PRODUCE_ACCESS = Access("WRITE on each TOPIC; for transactional records also WRITE on the TRANSACTIONAL_ID", _gate)


# --- the results


def refused_by_log(key: tuple[str, int], log: PartitionLog, error: Exception) -> PartitionProduceResponse:
    """Return a partition's result for records that the log has refused. Log unexpected errors."""
    if not isinstance(error, TidelogError):
        logger.error("%s-%d: could not append produced records", *key, exc_info=error)
        return PartitionProduceResponse(key[1], ErrorCode.UNKNOWN_SERVER_ERROR, -1, -1, log.log_start_offset)
    logger.info("%s-%d: refused produced records: %s", *key, error)
    answer = PartitionProduceResponse(key[1], error_code_of(error), -1)
    if not isinstance(error, _WITHOUT_LOG_START):
        answer.log_start_offset = log.log_start_offset
    if isinstance(error, RecordValidationError):
        answer.error_message = error.message
        answer.record_errors = [BatchIndexAndErrorMessage(one.batch_index, one.message) for one in error.record_errors]
    return answer


def refused_before(
    node: Node, key: tuple[str, int], log: PartitionLog | None, look: HeaderCheck, acks: int, client_id: str | None
) -> int | None:
    """Return the error code if a partition's records must be refused before the append, otherwise None."""
    refusal = node.leadership.refusal(TopicPartition(*key)) if log is None else ErrorCode.NONE
    if refusal is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return refusal
    if look.error_code:
        return look.error_code
    if not -1 <= acks <= 1:
        return ErrorCode.INVALID_REQUIRED_ACKS
    if key[0] in INTERNAL_TOPICS and client_id != ADMIN_CLIENT_ID:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return refusal or None


def refuse_all(
    sent: dict[tuple[str, int], Bytes], acks: int, code: ErrorCode, why: str | None = None
) -> ProduceResponse | Outcome:
    """Return the result of a request that fails as a whole, before anything was appended: an error for each partition, or
    CLOSE if acks=0.
    """
    if acks == 0:
        return Outcome.CLOSE
    answers: dict[str, list[PartitionProduceResponse]] = {}
    for name, index in sent:
        answers.setdefault(name, []).append(PartitionProduceResponse(index, code, -1, error_message=why))
    return produce_response(answers)


def produce_response(answers: dict[str, list[PartitionProduceResponse]]) -> ProduceResponse:
    """Return the response with the partition results of each topic."""
    return ProduceResponse([TopicProduceResponse(name, NO_TOPIC_ID, of_topic) for name, of_topic in answers.items()])
