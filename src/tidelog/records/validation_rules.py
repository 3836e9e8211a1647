"""A topic's rules for records that a leader appends, and how refused records are reported.

`validation` uses this module for every message format. It has the rules, which come from a topic's properties, the checks of a
batch's header, and the refusals, which are collected record by record and raised as one error. Record errors are reported by the
record's index in the batch (KIP-467). If one of the reasons is a timestamp, the error is an InvalidTimestampError.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from tidelog.config import INT64_MAX, LogConfig
from tidelog.config import LOG_APPEND_TIME as LOG_APPEND_TIME_NAME
from tidelog.errors import (
    InvalidRecordError,
    InvalidTimestampError,
    RecordError,
    RecordValidationError,
    UnsupportedForMessageFormatError,
)
from tidelog.model import NO_TIMESTAMP
from tidelog.records.batch import CREATE_TIME, LOG_APPEND_TIME, BatchHeader
from tidelog.records.compression import DEFAULT_DECOMPRESSION_LIMIT_BYTES, Codec
from tidelog.times import format_time

MIN_TIME = -(2**63)
MAX_TIME = 2**63 - 1

NO_KEY = "it has no key, but the topic is compacted"
MAX_RECORD_ERRORS = 1000
"""The most refused records that are listed. A compressed batch of 1 MB may hold millions of records."""

_CLAIM = "the producer set the timestamp type LogAppendTime"

_BEFORE = "message.timestamp.before.max.ms"
_AFTER = "message.timestamp.after.max.ms"
_DIFFERENCE = "message.timestamp.difference.max.ms"
"""The property whose value applies to either of the other two properties if that is not set."""

_LZ4_FAST = 9
"""Kafka's default level for LZ4, the only level that uses the fast compressor."""


class AppendOrigin(enum.Enum):
    """Where an append comes from. This determines how much is checked."""

    REPLICATION = "replication"
    COORDINATOR = "coordinator"
    CLIENT = "client"


@dataclass(frozen=True)
class ValidationRules:
    """A topic's rules for records, and the format that it stores."""

    timestamp_type: int = CREATE_TIME
    """CREATE_TIME or LOG_APPEND_TIME."""
    before_max_ms: int = MAX_TIME
    """How far (ms) a timestamp may be in the past, for CreateTime."""
    after_max_ms: int = MAX_TIME
    """How far (ms) a timestamp may be in the future, for CreateTime."""
    is_compacted: bool = False
    """Whether the topic is compacted, so that each record needs a key."""
    target_codec: Codec | None = None
    """The codec with which batches are stored. None keeps the producer's codec, at its default level."""
    target_level: int | None = None
    magic: int = 2
    leader_epoch: int = -1
    decompressed_max_bytes: int = DEFAULT_DECOMPRESSION_LIMIT_BYTES
    """The largest allowed decompressed size of a batch's records."""
    before_property: str = _BEFORE
    """The topic's property from which `before_max_ms` comes, for error messages."""
    after_property: str = _AFTER

    @classmethod
    def from_config(cls, config: LogConfig, leader_epoch: int) -> ValidationRules:
        """Return the rules that follow from a topic's properties, for a leader with this epoch."""
        codec, level = _COMPRESSION_TYPES[config.compression_type], None
        if codec is Codec.GZIP and config.compression_gzip_level != -1:
            level = config.compression_gzip_level
        elif codec is Codec.LZ4 and config.compression_lz4_level != _LZ4_FAST:
            level = config.compression_lz4_level
        elif codec is Codec.ZSTD:
            level = config.compression_zstd_level
        return cls(
            timestamp_type=LOG_APPEND_TIME if config.message_timestamp_type == LOG_APPEND_TIME_NAME else CREATE_TIME,
            before_max_ms=config.timestamp_before_max_ms,
            after_max_ms=config.timestamp_after_max_ms,
            before_property=_DIFFERENCE if config.message_timestamp_before_max_ms == INT64_MAX else _BEFORE,
            after_property=_DIFFERENCE if config.message_timestamp_after_max_ms == INT64_MAX else _AFTER,
            is_compacted=config.is_compacted,
            target_codec=codec,
            target_level=level,
            magic=config.magic,
            leader_epoch=leader_epoch,
            decompressed_max_bytes=config.decompressed_max_bytes,
        )


_COMPRESSION_TYPES = {
    "producer": None,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def check_batch(first: BatchHeader, header: BatchHeader, rules: ValidationRules, origin: AppendOrigin) -> None:
    """Raise an error if a batch's header shows a fault."""
    if header.magic != first.magic:
        raise InvalidRecordError(
            "the batches of an append have different formats",
            position=header.position,
            found=f"v{header.magic}",
            expected=f"v{first.magic}",
        )
    if header.magic < 2:
        return
    if origin is AppendOrigin.CLIENT:
        count = header.record_count
        offsets = header.last_offset - header.base_offset + 1
        if count <= 0 or count != offsets:
            raise InvalidRecordError(
                "the batch's record count does not match its offsets", position=header.position, found=count, expected=offsets
            )
        if header.is_control:
            raise InvalidRecordError("clients cannot write control batches", position=header.position)
        if header.has_producer_id and header.base_sequence < 0:
            raise InvalidRecordError(
                f"producer {header.producer_id} sent no sequence number", position=header.position, found=header.base_sequence
            )
    if rules.magic < 2 and (header.is_transactional or header.has_producer_id):
        what = "transactions" if header.is_transactional else "idempotent producers"
        raise UnsupportedForMessageFormatError(f"message format v{rules.magic} does not support {what}", position=header.position)


def time_bounds(rules: ValidationRules, now_ms: int) -> tuple[int, int]:
    """Return the smallest and the largest accepted timestamp."""
    if rules.timestamp_type == LOG_APPEND_TIME:
        return MIN_TIME, MAX_TIME
    return max(now_ms - rules.before_max_ms, MIN_TIME), min(now_ms + rules.after_max_ms, MAX_TIME)


def claim_refused(header: BatchHeader, rules: ValidationRules, low: int, high: int) -> str | None:
    """Return the reason why a header that claims LogAppendTime makes every record invalid, or None if a CreateTime topic accepts
    it.
    """
    claimed = header.max_timestamp
    if rules.timestamp_type == LOG_APPEND_TIME or claimed == NO_TIMESTAMP:
        return _CLAIM
    return None if low <= claimed <= high else outside(claimed, low, high, rules)


def outside(timestamp: int, low: int, high: int, rules: ValidationRules) -> str:
    """Return the reason why a timestamp outside `[low, high]` is refused, which names the bound and the property that sets it."""
    if timestamp > high:
        return f"timestamp {format_time(timestamp)} is after {_shown(high)}, the latest that {rules.after_property} allows"
    return f"timestamp {format_time(timestamp)} is before {_shown(low)}, the earliest that {rules.before_property} allows"


_shown = lru_cache(maxsize=8)(format_time)
"""Formats a bound, cached because all refusals of a batch have the same bounds."""


class Refused(NamedTuple):
    """A refused record. `by_time` is true if its timestamp is the reason for the refusal."""

    by_time: bool
    batch_index: int
    message: str


def raise_refused(refused: Sequence[Refused], header: BatchHeader, total: int = 0) -> None:
    """Raise the error for a batch's refused records, if there are any. It is an InvalidTimestampError if one of the reasons is a
    timestamp.

    `total` is the number of refused records, in case `refused` does not list all. At most `MAX_RECORD_ERRORS` are listed.
    """
    if not refused:
        return
    total = max(total, len(refused))
    refused = refused[:MAX_RECORD_ERRORS]
    by_time = any(one.by_time for one in refused)
    first = next(one for one in refused if one.by_time == by_time)
    kind = InvalidTimestampError if by_time else RecordValidationError
    more = f" (and {total - 1} more records were refused)" if total > 1 else ""
    raise kind(
        f"record {first.batch_index}: {first.message}{more}",
        position=header.position,
        record_errors=[RecordError(one.batch_index, one.message) for one in refused],
    )
