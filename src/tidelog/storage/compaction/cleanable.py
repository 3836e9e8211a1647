"""Determines which part of a log can be compacted, and how urgent that is (spec §15; KIP-58, KIP-354).

    log start         first dirty offset            first uncleanable offset              log end
    | clean segments  | dirty, to be compacted      | uncleanable for now                 |

The first dirty offset is the cleaner's checkpoint: where the last pass ended. The uncleanable part begins at
the smallest of these offsets:

    the last stable offset                  later records are undecided or not replicated
    the active segment's base offset        the segment still grows
    the first segment whose largest         min.compaction.lag.ms
    timestamp is younger than the lag

These functions change nothing. `cleaner_manager` uses them to choose a log, and `cleaner` compacts it.
"""

from __future__ import annotations

import logging
from typing import NamedTuple

from tidelog.config import INT64_MAX
from tidelog.model import TopicPartition
from tidelog.storage.partition.partition_log import PartitionLog

logger = logging.getLogger("tidelog.storage")


class OffsetsToClean(NamedTuple):
    """A log's dirty section: its first offset, the offset after its last record, and whether the checkpoint was invalid and must
    be replaced.
    """

    first_dirty_offset: int
    first_uncleanable_dirty_offset: int
    force_update_checkpoint: bool = False


class LogToClean(NamedTuple):
    """A log with records to compact. Byte counts include only `.log` files."""

    topic_partition: TopicPartition
    log: PartitionLog
    first_dirty_offset: int
    first_uncleanable_offset: int
    """Base offset of the first segment that is not compacted."""
    clean_bytes: int
    cleanable_bytes: int
    needs_compaction_now: bool = False
    """Whether a record has waited longer than max.compaction.lag.ms."""

    @classmethod
    def of(
        cls, log: PartitionLog, first_dirty_offset: int, uncleanable_offset: int, needs_compaction_now: bool = False
    ) -> LogToClean:
        """Measure a log whose records below `uncleanable_offset` may be compacted."""
        first_uncleanable, cleanable_bytes = calculate_cleanable_bytes(log, first_dirty_offset, uncleanable_offset)
        clean = log.segments.values(-1, first_dirty_offset)
        return cls(
            log.topic_partition,
            log,
            first_dirty_offset,
            first_uncleanable,
            sum(segment.size_bytes for segment in clean),
            cleanable_bytes,
            needs_compaction_now,
        )

    @property
    def total_bytes(self) -> int:
        return self.clean_bytes + self.cleanable_bytes

    @property
    def cleanable_ratio(self) -> float:
        """The dirty share of the log without its uncleanable segments; min.cleanable.dirty.ratio is compared with it."""
        return self.cleanable_bytes / self.total_bytes if self.total_bytes else 0.0


def cleanable_offsets(log: PartitionLog, last_clean_offset: int | None, now_ms: int) -> OffsetsToClean:
    """Return a log's dirty section. `last_clean_offset` is the cleaner's checkpoint, or None without a checkpoint."""
    first_dirty, is_reset = _first_dirty_offset(log, last_clean_offset)
    uncleanable = min(log.last_stable_offset, log.segments.active.base_offset)
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for segment in log.segments.non_active_from(first_dirty):
            if segment.largest_timestamp > now_ms - lag_ms:
                uncleanable = min(uncleanable, segment.base_offset)
                break
    return OffsetsToClean(first_dirty, max(first_dirty, uncleanable), is_reset)


def _first_dirty_offset(log: PartitionLog, last_clean_offset: int | None) -> tuple[int, bool]:
    start = log.log_start_offset
    if last_clean_offset is None:
        return start, False
    if last_clean_offset < start:
        # If retention also deletes segments, the log start often moves past the checkpoint.
        if not log.config.is_deleted:
            logger.warning("%s: the cleaner's checkpoint %d is below the log start, %d", log.directory, last_clean_offset, start)
        return start, True
    if last_clean_offset > log.log_end_offset:
        logger.warning(
            "%s: the cleaner's checkpoint %d is above the log end, %d: the whole log counts as dirty",
            log.directory,
            last_clean_offset,
            log.log_end_offset,
        )
        return start, True
    return last_clean_offset, False


def calculate_cleanable_bytes(log: PartitionLog, first_dirty_offset: int, uncleanable_offset: int) -> tuple[int, int]:
    """Return the base offset of the first segment that is not compacted, and the dirty bytes before it."""
    segments = log.segments.non_active_from(uncleanable_offset)
    first_uncleanable = (segments[0] if segments else log.segments.active).base_offset
    dirty = log.segments.values(min(first_dirty_offset, first_uncleanable), first_uncleanable)
    return first_uncleanable, sum(segment.size_bytes for segment in dirty)


def max_compaction_delay_ms(log: PartitionLog, first_dirty_offset: int, now_ms: int) -> int:
    """Return by how many ms the oldest dirty segment has exceeded max.compaction.lag.ms, 0 if none has. A segment's age is
    measured from the timestamp of its first batch.
    """
    if log.config.max_compaction_lag_ms >= now_ms:  # The default: no segment needs to be read.
        return 0
    first_timestamps = [segment.first_batch_timestamp for segment in log.segments.non_active_from(first_dirty_offset)]
    earliest = min((timestamp for timestamp in first_timestamps if timestamp > 0), default=INT64_MAX)
    return max(0, now_ms - log.config.max_compaction_lag_ms - earliest)
