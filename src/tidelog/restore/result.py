"""The result of a restore."""

from __future__ import annotations

from typing import NamedTuple

from tidelog.model import TopicPartition


class RestoredPartition(NamedTuple):
    """One partition's result."""

    source: TopicPartition
    target: TopicPartition
    """The target partition. If the records went to several partitions, this is the topic's name in the target with the source
    partition's number."""
    start_offset: int
    """The first offset restored, as in the backup."""
    end_offset: int | None
    """The target partition's end offset; None if the records went to several partitions."""
    records: int | None
    """The number of records written. None if it is known only after reading back: if the restore was continued, or for compressed
    messages of formats before v2.
    """
    size_bytes: int
    late_records: int
    """The number of records older than the requested time that were appended after the cut. Only the order `time` restores them.
    """
    transactions_left_out: int
