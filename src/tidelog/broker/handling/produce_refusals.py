"""Results for produced records that are refused, either before the append or by the log."""

from __future__ import annotations

import logging
from typing import Final

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
from tidelog.records.compression import Bytes
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.wire.error_codes import ErrorCode, error_code_of
from tidelog.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)

logger = logging.getLogger("tidelog.broker")

ADMIN_CLIENT_ID: Final = "__admin_client"
"""A client with this client id may write to internal topics. Kafka's tools use this id."""

_WITHOUT_LOG_START = (CorruptBatchError, RecordTooLargeError, DecompressedTooLargeError, RecordBatchTooLargeError, StorageError)


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
