"""The error for a partition's result in a Produce response."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tidelog.client.connections.addresses import BrokerAddress
from tidelog.client.connections.failures import error_for
from tidelog.errors import InvalidTimestampError, RecordError, RecordValidationError, TidelogError
from tidelog.model import TopicPartition
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.produce import PartitionProduceResponse


def produce_error(key: TopicPartition, answer: PartitionProduceResponse, place: BrokerAddress) -> TidelogError:
    """Return the error for a partition's result, with the refused records if the broker names them."""
    what = f"append to {key.topic}-{key.partition}"
    detail = answer.error_message
    if answer.error_code in (ErrorCode.INVALID_RECORD, ErrorCode.INVALID_TIMESTAMP):
        cls = InvalidTimestampError if answer.error_code == ErrorCode.INVALID_TIMESTAMP else RecordValidationError
        record_errors = [
            RecordError(error.batch_index, error.batch_index_error_message or "") for error in answer.record_errors or ()
        ]
        return cls(
            ": ".join((what, *_reasons(detail, record_errors))),
            record_errors=record_errors,
            path=str(place),
            found=ErrorCode(answer.error_code).name,
        )
    return error_for(answer.error_code, what, place, detail)


def _reasons(detail: str | None, record_errors: Sequence[RecordError]) -> Iterator[str]:
    """Yield the broker's message, then the first refused record with its reason, unless the message contains the reason. Kafka's
    message does not.
    """
    if detail:
        yield detail.removesuffix(".")
    if record_errors and (first := record_errors[0]).message not in (detail or ""):
        yield f"record {first.batch_index}: {first.message.removesuffix('.')}"
