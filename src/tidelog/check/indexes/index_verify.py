"""Whether the indexes and time maps of a data folder are right and complete; nothing is written.

| file | is compared with |
|---|---|
| `.index`, `.timeindex` | what Kafka 3.9.1's rules give for the log; where they differ, entry by entry (`segment_index_check`) |
| `.txnindex` | the transactions that the producers' state sees aborted, segment by segment (`txn_index_check`) |
| `.timemap` | the one that is built from the log (`time_map_check`) |
| `.log` | itself: checksums, offsets, lengths. What follows the first batch that is wrong has no index |

The interval, index.interval.bytes, is taken from the indexes themselves unless it is given: first from the beginning of a few
segments, then from all that differ. A segment whose indexes are just what the log says costs one walk in the kernel; segments are
walked on several threads here, and by Spark's workers in `tidelog.spark.jobs`. What older releases wrote by other rules is right,
too, and is noted.

An index is a hint in Tidelog (ADR 3), so none of this is needed for right answers; Kafka believes its indexes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from tidelog.check.indexes.in_order import in_order
from tidelog.check.indexes.partition_interval import DEFAULT_INTERVAL_BYTES, PartitionToVerify
from tidelog.check.indexes.partition_verify import PartitionVerification, VerifiedPartition
from tidelog.check.indexes.segment_verify import (
    SURVEYED_SEGMENTS,
    ExaminedSegment,
    SegmentToVerify,
    check_prepared,
    examine_segment,
    make_survey,
    prepare_segment,
)
from tidelog.storage.loading.log_scan import Progress

__all__ = ["DEFAULT_INTERVAL_BYTES", "PartitionToVerify", "VerifiedPartition", "VerifyOptions", "verify_partitions"]


class VerifyOptions(NamedTuple):
    """How a folder is verified."""

    interval_bytes: int | None = None
    """None: found from the indexes."""
    time_map_dir: Path | None = None
    """A folder of time maps, beside those beside the segments."""
    threads: int = 1
    progress: Progress | None = None
    """Hears, from the walking threads, how many bytes more of the logs were walked."""


def verify_partitions(partitions: Iterable[PartitionToVerify], options: VerifyOptions) -> Iterator[VerifiedPartition]:
    """Yield what was found of each partition, in order.

    Raises StorageError, and what opening raises. A segment that its owner removes meanwhile is passed over.
    """
    waiting: list[PartitionVerification] = []

    def tasks() -> Iterator[tuple[PartitionVerification, SegmentToVerify]]:
        for partition in partitions:
            opened = PartitionVerification(partition, options.interval_bytes, options.time_map_dir)
            waiting.append(opened)
            for task in opened.tasks:
                yield opened, task

    def work(one: tuple[PartitionVerification, SegmentToVerify]) -> tuple[PartitionVerification, ExaminedSegment]:
        return one[0], examine_segment(one[1], options.progress)

    for opened, examined in in_order(work, tasks(), options.threads):
        # A partition without segments has none that could tell of its end.
        while waiting[0] is not opened:
            yield _result(waiting.pop(0), options.threads)
        waiting[0].take(examined)
    for partition in waiting:
        yield _result(partition, options.threads)


def _result(partition: PartitionVerification, threads: int) -> VerifiedPartition:
    """Check the segments that are not just what their logs say, by the rules that they were written by."""
    if partition.unclear:
        prepared = in_order(prepare_segment, partition.unclear, threads)
        surveyed = list(islice(prepared, SURVEYED_SEGMENTS))
        survey = make_survey(partition.survey_seed, surveyed, map(prepare_segment, partition.usual))
        for one in chain(surveyed, prepared):
            partition.take_checked(check_prepared(one, survey, partition.restarts))
    return partition.result()
