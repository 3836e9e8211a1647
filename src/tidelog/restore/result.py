"""The result of a restore."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.model import TopicPartition


class RestoredPartition(NamedTuple):
    """One partition's result."""

    source: TopicPartition
    target: TopicPartition
    """The target partition. If the records went to several partitions, it has the source partition's number."""
    start_offset: int
    """The first offset restored, as in the backup."""
    end_offset: int | None
    """The target partition's end offset; None if the records went to several partitions."""
    records: int | None
    """None if only reading back can tell: a restore that went on, or compressed messages of the formats before 2."""
    size_bytes: int
    late_records: int
    """Records older than the moment that were appended after the cut; restored only by time."""
    transactions_left_out: int
