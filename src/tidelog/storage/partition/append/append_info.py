"""What an append says when it comes back: where the records are, and under which time (spec §5.1)."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.model import NO_TIMESTAMP, UNKNOWN_OFFSET
from tidelog.storage.producers.producer_state_entry import BatchMetadata


class AppendWork(NamedTuple):
    """What an append had to do with its records beside looking at them."""

    is_decompressed: bool
    """They came compressed, and were unpacked to be checked."""
    is_recompressed: bool
    """They were packed (again) to be stored."""
    is_converted: bool
    """They are stored in another message format than they came in."""


class AppendInfo(NamedTuple):
    """The outcome of one append. Timestamps in epoch ms, -1 for none."""

    first_offset: int
    """Offset of the first record; -1 where nothing was appended, and for a follower's v0 or v1, whose headers do not say it."""
    last_offset: int
    """Offset of the last record, -1 where nothing was appended."""
    max_timestamp: int
    """Largest timestamp of the records."""
    log_append_time: int
    """The append time that the records were given; -1 with CreateTime. Of a duplicate: the timestamp of the batch it repeats."""
    log_start_offset: int
    size_bytes: int
    """Bytes written, 0 for a duplicate."""
    is_duplicate: bool = False
    """Whether a producer repeated one of its last batches: nothing was appended, the offsets are the old ones."""
    work: AppendWork | None = None
    """None if the records were stored as they came, uncompressed."""

    @classmethod
    def nothing(cls, log_start_offset: int) -> AppendInfo:
        """Return the outcome of an append without a batch."""
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
    """Return the same as `AppendInfo` does of these."""
    return tuple.__new__(
        AppendInfo, (first_offset, last_offset, max_timestamp, log_append_time, log_start_offset, size_bytes, False, work)
    )


def as_duplicate(info: AppendInfo, repeated: BatchMetadata) -> AppendInfo:
    """Return the outcome of an append that turned out to be a repetition: the old offsets, and nothing written."""
    return info._replace(
        first_offset=repeated.first_offset,
        last_offset=repeated.last_offset,
        log_append_time=repeated.timestamp,
        size_bytes=0,
        is_duplicate=True,
    )
