"""Every error that Tidelog raises, and the Kafka error code of each.

They form one tree::

    TidelogError
    ├── InvalidArgumentError          an invalid argument (also a ValueError)
    │   └── IllegalStateError             a transition that a state machine does not allow
    ├── NotFoundError
    │   ├── DataDirNotFoundError      no such folder, or no Kafka data folder
    │   ├── MissingPackageError       a package of an optional extra is not installed (also an ImportError)
    │   └── UnknownTopicOrPartitionError
    ├── CorruptDataError              bytes that violate their format
    │   ├── CorruptBatchError         a batch: header, length or checksum
    │   ├── InvalidRecordError        a record inside a batch
    │   │   └── RecordValidationError     a leader refuses records, and lists each of them
    │   │       └── InvalidTimestampError     ... at least one of them because of its timestamp
    │   ├── DecompressionError        a compressed block is damaged or too large
    │   │   └── DecompressedTooLargeError ... too large once decompressed
    │   ├── CorruptIndexError         .index, .timeindex, .txnindex
    │   ├── CorruptSnapshotError      .snapshot
    │   └── CorruptCheckpointError    checkpoint files, partition.metadata, meta.properties
    ├── PointExpiredError             `backup expire` has removed the point of a backup that is being read
    ├── SegmentChangedError           a segment was removed, truncated or replaced between plan and read
    ├── OffsetOutOfRangeError
    ├── UnsupportedForMessageFormatError
    ├── UnsupportedCompressionTypeError
    ├── UnsupportedVersionError
    ├── IndexFullError                the index has no room for another entry (also a ValueError)
    ├── InvalidOffsetError            an offset that goes backward
    │   ├── OffsetsOutOfOrderError    a follower's batches are not in order
    │   └── UnexpectedAppendOffsetError   a follower's batch begins below the log end
    ├── OffsetOverflowError           an offset relative to its segment's base overflows int32
    ├── RecordTooLargeError           larger than max.message.bytes
    ├── RecordBatchTooLargeError      larger than segment.bytes
    ├── ProducerError                 a producer's batch does not follow its earlier ones
    │   ├── OutOfOrderSequenceError
    │   ├── InvalidProducerEpochError     a newer epoch has fenced the batch's epoch
    │   ├── InvalidTxnStateError
    │   ├── ProducerFencedError           another producer took over its transactional id
    │   └── TransactionCoordinatorFencedError
    ├── ProtocolError                 bytes on the wire that violate the protocol
    ├── InconsistentTopicIdError      a folder belongs to a different topic of the same name
    ├── TopicExistsError
    ├── BrokerError                   a broker answered with an error code that has no class here
    │   └── RequestTimedOutError
    ├── BrokerUnreachableError        a broker cannot be reached, or the connection was lost (also an OSError)
    ├── SchemaRegistryError           a schema registry cannot be reached, or refuses (also an OSError)
    ├── SecurityProtocolError         a port uses a different security protocol, or lacks the SASL mechanism
    ├── AuthenticationError           either side refuses a password, a certificate or a token
    └── StorageError                  an operation of the file system failed (also an OSError)
        └── LogOfflineError           the partition was taken offline, or its log is closed

A message states in one line what went wrong, where (path and byte position), what was found and what was expected.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

__all__ = [
    "AuthenticationError",
    "BrokerError",
    "BrokerUnreachableError",
    "CorruptBatchError",
    "CorruptCheckpointError",
    "CorruptDataError",
    "CorruptIndexError",
    "CorruptSnapshotError",
    "DataDirNotFoundError",
    "DecompressedTooLargeError",
    "DecompressionError",
    "IncompleteLogWarning",
    "InconsistentTopicIdError",
    "IndexFullError",
    "InvalidArgumentError",
    "InvalidOffsetError",
    "InvalidProducerEpochError",
    "InvalidRecordError",
    "InvalidTimestampError",
    "InvalidTxnStateError",
    "LogOfflineError",
    "MissingPackageError",
    "NotFoundError",
    "OffsetOutOfRangeError",
    "OffsetOverflowError",
    "OffsetsOutOfOrderError",
    "OutOfOrderSequenceError",
    "PointExpiredError",
    "ProducerError",
    "ProducerFencedError",
    "ProtocolError",
    "RecordBatchTooLargeError",
    "RecordError",
    "RecordTooLargeError",
    "RecordValidationError",
    "RequestTimedOutError",
    "SchemaRegistryError",
    "SecurityProtocolError",
    "SegmentChangedError",
    "StorageError",
    "TidelogError",
    "TooManyElementsError",
    "TopicExistsError",
    "TransactionCoordinatorFencedError",
    "UnexpectedAppendOffsetError",
    "UnknownTopicOrPartitionError",
    "UnsupportedCompressionTypeError",
    "UnsupportedForMessageFormatError",
    "UnsupportedVersionError",
    "kafka_error_code",
]


class TidelogError(Exception):
    """The base class of all errors. `path` and `position` (bytes) say where the error is, if that is known."""

    def __init__(
        self,
        message: str,
        *,
        path: str | os.PathLike[str] | None = None,
        position: int | None = None,
        found: Any = None,
        expected: Any = None,
    ) -> None:
        self.message = message
        self.path = None if path is None else str(path)
        self.position = position
        self.found = found
        self.expected = expected
        super().__init__(message)

    def __str__(self) -> str:
        text = self.message
        if self.found is not None:
            text += f": found {self.found}"
        if self.expected is not None:
            text += f"{',' if self.found is not None else ':'} expected {self.expected}"
        if self.path is not None:
            at = "" if self.position is None else f" at byte {self.position}"
            text += f" ({self.path}{at})"
        elif self.position is not None:
            text += f" (at byte {self.position})"
        return text

    def __reduce__(self) -> tuple[Any, ...]:
        # Errors cross process borders (Spark's workers): the keyword arguments must survive pickling.
        place = {"path": self.path, "position": self.position, "found": self.found, "expected": self.expected}
        return (_rebuild, (type(self), self.message, place))


def _rebuild(cls: type[TidelogError], message: str, place: dict[str, Any]) -> TidelogError:
    return cls(message, **place)


class InvalidArgumentError(TidelogError, ValueError):
    """An argument or a setting is invalid. The message says what was found and what was expected."""


class IllegalStateError(InvalidArgumentError):
    """A transition that a state machine does not allow: a bug in Tidelog. The transition is not made. See `transitions`."""


class NotFoundError(TidelogError):
    """Something that was requested does not exist."""


class DataDirNotFoundError(NotFoundError):
    """The folder does not exist, or contains no partition of a Kafka log."""


class MissingPackageError(NotFoundError, ImportError):
    """A package of one of Tidelog's extras is not installed; the message names the extra."""

    def __init__(self, message: str, **place: Any) -> None:
        super().__init__(message, **place)


class UnknownTopicOrPartitionError(NotFoundError):
    """The data folder or broker has no such topic or partition."""


class CorruptDataError(TidelogError):
    """Bytes violate their format."""


class CorruptBatchError(CorruptDataError):
    """The header, length or checksum of a record batch is wrong (Kafka: CORRUPT_MESSAGE)."""


class InvalidRecordError(CorruptDataError):
    """A batch with a correct checksum contains a record that violates the format (Kafka: INVALID_RECORD)."""


class RecordError(NamedTuple):
    """The index of a refused record in the appended set of records, from 0, and the reason."""

    batch_index: int
    message: str


class RecordValidationError(InvalidRecordError):
    """A leader refuses a set of records. `record_errors` lists the invalid records and the reasons (Kafka: INVALID_RECORD)."""

    def __init__(self, message: str, *, record_errors: Sequence[RecordError] = (), **place: Any) -> None:
        super().__init__(message, **place)
        self.record_errors = tuple(record_errors)

    def __reduce__(self) -> tuple[Any, ...]:
        place = {"path": self.path, "position": self.position, "found": self.found, "expected": self.expected}
        return (_rebuild, (type(self), self.message, {**place, "record_errors": self.record_errors}))


class InvalidTimestampError(RecordValidationError):
    """A leader refuses a set of records, at least one of them because of its timestamp (Kafka: INVALID_TIMESTAMP)."""


class DecompressionError(CorruptDataError):
    """A compressed block is damaged, or exceeds its limit once decompressed."""


class DecompressedTooLargeError(DecompressionError):
    """A compressed block exceeds its limit once decompressed (Kafka: MESSAGE_TOO_LARGE, as for any records that are too
    large).
    """


class CorruptIndexError(CorruptDataError):
    """An index file violates its format, or contradicts the log."""


class CorruptSnapshotError(CorruptDataError):
    """A producer state snapshot has a wrong version, checksum or length."""


class CorruptCheckpointError(CorruptDataError):
    """A checkpoint or metadata file cannot be parsed."""


class PointExpiredError(TidelogError):
    """A point of a backup was removed by `backup expire`, and an object that it needs is gone.

    Readers may skip damage, and continue without a segment that retention has removed. A read cannot continue after this error.
    """


class SegmentChangedError(TidelogError):
    """A segment was removed, truncated or replaced between plan and read. Plan and read again."""

    def __str__(self) -> str:
        return f"{super().__str__()}; read again"


class OffsetOutOfRangeError(TidelogError):
    """The offset is below the log start or above the log end."""


class UnsupportedForMessageFormatError(TidelogError):
    """The message format (v0) has no timestamps."""


class UnsupportedCompressionTypeError(TidelogError):
    """The message format does not support the compression codec."""


class UnsupportedVersionError(TidelogError):
    """The call needs a field or a special timestamp that no request version supported by both sides has."""


class IndexFullError(TidelogError, ValueError):
    """The index is full, so the segment must roll."""


class InvalidOffsetError(TidelogError):
    """An offset decreases where offsets must increase."""


class OffsetsOutOfOrderError(InvalidOffsetError):
    """The offsets in a follower's append do not increase."""


class UnexpectedAppendOffsetError(InvalidOffsetError):
    """A follower's append begins below the log end. `found` is its first offset; for formats v0 and v1, the last offset of its
    first batch.

    `first_offset` and `last_offset` cover the whole append: an empty log may be restarted at `first_offset`.
    """

    def __init__(self, message: str, *, first_offset: int = -1, last_offset: int = -1, **place: Any) -> None:
        super().__init__(message, **place)
        self.first_offset = first_offset
        self.last_offset = last_offset

    def __reduce__(self) -> tuple[Any, ...]:
        place = {"path": self.path, "position": self.position, "found": self.found, "expected": self.expected}
        offsets = {"first_offset": self.first_offset, "last_offset": self.last_offset}
        return (_rebuild, (type(self), self.message, {**place, **offsets}))


class OffsetOverflowError(TidelogError):
    """An offset relative to its segment's base offset does not fit in an int32."""


class RecordTooLargeError(TidelogError):
    """A batch is larger than max.message.bytes."""


class RecordBatchTooLargeError(TidelogError):
    """A set of records is larger than segment.bytes (Kafka: RECORD_LIST_TOO_LARGE)."""


class ProducerError(TidelogError):
    """A producer's batch does not follow its earlier batches. Nothing was appended."""


class OutOfOrderSequenceError(ProducerError):
    """A batch's sequence does not follow the producer's last batch."""


class InvalidProducerEpochError(ProducerError):
    """A newer producer epoch has fenced the batch's epoch."""


class InvalidTxnStateError(ProducerError):
    """A producer sent a batch outside of its open transaction."""


class ProducerFencedError(ProducerError):
    """Another producer started with the same transactional id, or a transaction exceeded its timeout: this producer must be
    closed.
    """


class TransactionCoordinatorFencedError(ProducerError):
    """A transaction marker came from a coordinator that a newer coordinator has replaced."""


class ProtocolError(TidelogError):
    """A request or response violates the protocol's format. `position` is the byte within its frame."""


class TooManyElementsError(ProtocolError):
    """A request's arrays have more elements than the reader may create."""


class InconsistentTopicIdError(TidelogError):
    """The folder belongs to a different topic of the same name."""


class TopicExistsError(TidelogError):
    """The topic already exists."""


class BrokerError(TidelogError):
    """A broker answered with an error. `error_code` is Kafka's code, `found` is its name."""

    def __init__(self, message: str, *, error_code: int = -1, **place: Any) -> None:
        super().__init__(message, **place)
        self.error_code = error_code

    def __reduce__(self) -> tuple[Any, ...]:
        place = {"path": self.path, "position": self.position, "found": self.found, "expected": self.expected}
        return (_rebuild, (type(self), self.message, {**place, "error_code": self.error_code}))


class RequestTimedOutError(BrokerError):
    """No broker answered in time."""


class BrokerUnreachableError(TidelogError, OSError):
    """A connection to a broker failed or was lost; `path` is the broker's host:port."""


class SchemaRegistryError(TidelogError, OSError):
    """A schema registry cannot be reached, refuses the credentials, or returns no valid schema; `path` is its URL, without
    credentials.
    """


class SecurityProtocolError(TidelogError):
    """A port uses a different security protocol from the client, or lacks the SASL mechanism. `path` is its host:port.

    A retry does not help.
    """


class AuthenticationError(TidelogError):
    """The broker refused the client's password, certificate or token, or the client refused the broker's certificate. The message
    contains no secret.

    A retry does not help. Kafka: SASL_AUTHENTICATION_FAILED.
    """


class StorageError(TidelogError, OSError):
    """An operation of the file system failed: no space, no permission, an I/O error."""

    def __init__(self, message: str, **place: Any) -> None:
        super().__init__(message, **place)
        self.strerror = message
        """`strerror` is set as in any other OSError, because code that reads all kinds of files prints it."""


class LogOfflineError(StorageError):
    """The partition went offline after an I/O error, or its log is closed; the message says which, and why."""


class IncompleteLogWarning(UserWarning):
    """Warns that the folder lacks records that could change a result. The result is the best that the files allow, so this is not
    an error.
    """


KAFKA_ERROR_CODES: dict[type[TidelogError], tuple[int, str]] = {
    OffsetOutOfRangeError: (1, "OFFSET_OUT_OF_RANGE"),
    CorruptBatchError: (2, "CORRUPT_MESSAGE"),
    DecompressionError: (-1, "UNKNOWN_SERVER_ERROR"),
    UnknownTopicOrPartitionError: (3, "UNKNOWN_TOPIC_OR_PARTITION"),
    RequestTimedOutError: (7, "REQUEST_TIMED_OUT"),
    RecordTooLargeError: (10, "MESSAGE_TOO_LARGE"),
    DecompressedTooLargeError: (10, "MESSAGE_TOO_LARGE"),
    RecordBatchTooLargeError: (18, "RECORD_LIST_TOO_LARGE"),
    InvalidTimestampError: (32, "INVALID_TIMESTAMP"),
    UnsupportedVersionError: (35, "UNSUPPORTED_VERSION"),
    TopicExistsError: (36, "TOPIC_ALREADY_EXISTS"),
    ProtocolError: (42, "INVALID_REQUEST"),
    UnsupportedForMessageFormatError: (43, "UNSUPPORTED_FOR_MESSAGE_FORMAT"),
    OutOfOrderSequenceError: (45, "OUT_OF_ORDER_SEQUENCE_NUMBER"),
    InvalidProducerEpochError: (47, "INVALID_PRODUCER_EPOCH"),
    InvalidTxnStateError: (48, "INVALID_TXN_STATE"),
    TransactionCoordinatorFencedError: (52, "TRANSACTION_COORDINATOR_FENCED"),
    StorageError: (56, "KAFKA_STORAGE_ERROR"),
    AuthenticationError: (58, "SASL_AUTHENTICATION_FAILED"),
    UnsupportedCompressionTypeError: (76, "UNSUPPORTED_COMPRESSION_TYPE"),
    InvalidRecordError: (87, "INVALID_RECORD"),
    ProducerFencedError: (90, "PRODUCER_FENCED"),
    InconsistentTopicIdError: (103, "INCONSISTENT_TOPIC_ID"),
}
"""Class → (code, name) in Kafka's protocol. A subclass has the code of its nearest ancestor in this table."""


def kafka_error_code(error: type[TidelogError]) -> tuple[int, str]:
    """Return Kafka's (code, name) for an error class; (-1, "UNKNOWN_SERVER_ERROR") if Kafka has no code for it."""
    for cls in error.__mro__:
        if cls in KAFKA_ERROR_CODES:
            return KAFKA_ERROR_CODES[cls]
    return (-1, "UNKNOWN_SERVER_ERROR")
