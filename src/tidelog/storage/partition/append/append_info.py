"""The result of an append: offsets and timestamps of the records (spec §5.1)."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.model import NO_TIMESTAMP, UNKNOWN_OFFSET
from tidelog.storage.producers.producer_state_entry import BatchMetadata


class AppendWork(NamedTuple):
    """What was done to an append's records, besides checking them."""

    is_decompressed: bool
    """The records arrived compressed, and were decompressed for the checks."""
    is_recompressed: bool
    """The records were compressed (again) to be stored."""
    is_converted: bool
    """The records are stored in a message format other than the one in which they arrived."""


class AppendInfo(NamedTuple):
    """The result of one append. Timestamps are in epoch ms, -1 for none."""

    first_offset: int
    """Offset of the first record. -1 if nothing was appended, and for v0 or v1 batches of a follower, whose headers lack the
    offset.
    """
    last_offset: int
    """Offset of the last record, -1 if nothing was appended."""
    max_timestamp: int
    """Largest timestamp of the records."""
    log_append_time: int
    """The append time of the records; -1 with CreateTime. For a duplicate: the timestamp of the original batch."""
    log_start_offset: int
    size_bytes: int
    """Bytes written, 0 for a duplicate."""
    is_duplicate: bool = False
    """Whether a producer resent one of its last batches. Nothing was appended then, and the offsets are the original batch's."""
    work: AppendWork | None = None
    """None if the records were stored as they arrived, uncompressed."""

    @classmethod
    def nothing(cls, log_start_offset: int) -> AppendInfo:
        """Return the result of an append without a batch."""
        return cls(UNKNOWN_OFFSET, UNKNOWN_OFFSET, NO_TIMESTAMP, NO_TIMESTAMP, log_start_offset, 0)


def append_info_fast(
    first_offset: int,
    last_offset: int,
    max_timestamp: int,
    log_append_time: int,
    log_start_offset: int,
    size_bytes: int,
    work: AppendWork | None = None,
) -> AppendInfo:
    """Return `AppendInfo` with these arguments, without the cost of its constructor."""
    return tuple.__new__(
        AppendInfo, (first_offset, last_offset, max_timestamp, log_append_time, log_start_offset, size_bytes, False, work)
    )


def as_duplicate(info: AppendInfo, repeated: BatchMetadata) -> AppendInfo:
    """Return the result of an append that is a duplicate: the original offsets, and nothing written."""
    return info._replace(
        first_offset=repeated.first_offset,
        last_offset=repeated.last_offset,
        log_append_time=repeated.timestamp,
        size_bytes=0,
        is_duplicate=True,
    )
