"""The answer for records that a log refuses."""

from __future__ import annotations

import logging

from tidelog.errors import (
    CorruptBatchError,
    DecompressedTooLargeError,
    RecordBatchTooLargeError,
    RecordTooLargeError,
    RecordValidationError,
    StorageError,
    TidelogError,
)
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.wire.error_codes import ErrorCode, error_code_of
from tidelog.wire.messages.produce import BatchIndexAndErrorMessage, PartitionProduceResponse

logger = logging.getLogger("tidelog.broker")

_WITHOUT_LOG_START = (CorruptBatchError, RecordTooLargeError, DecompressedTooLargeError, RecordBatchTooLargeError, StorageError)


def refused_by_log(key: tuple[str, int], log: PartitionLog, error: Exception) -> PartitionProduceResponse:
    """Return the answer for records that the log refused."""
    if not isinstance(error, TidelogError):
        logger.error("produce to %s-%d failed", *key, exc_info=error)
        return PartitionProduceResponse(key[1], ErrorCode.UNKNOWN_SERVER_ERROR, -1, -1, log.log_start_offset)
    logger.info("produce to %s-%d refused: %s", *key, error)
    answer = PartitionProduceResponse(key[1], error_code_of(error), -1)
    if not isinstance(error, _WITHOUT_LOG_START):
        answer.log_start_offset = log.log_start_offset
    if isinstance(error, RecordValidationError):
        answer.error_message = error.message
        answer.record_errors = [BatchIndexAndErrorMessage(one.batch_index, one.message) for one in error.record_errors]
    return answer
