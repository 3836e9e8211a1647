"""Computes statistics of each topic of a data folder (see the warnings about rolling by time in KIP-32 and KIP-33).

Many segments that were rolled by time, or that hold a single batch, indicate producer timestamps further apart than segment.ms:
`roll_statistics` counts such segments. `LogManager.statistics` returns the statistics.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Generator, Mapping
from typing import NamedTuple

from tidelog.model import TopicPartition
from tidelog.storage.partition.partition_log import PartitionLog

AT_ONCE = 250
"""How many logs are checked between two `yield`s. This takes about a millisecond."""


class TopicStatistics(NamedTuple):
    """The statistics of one topic. Rolled and one-batch segments are counted since startup. `size_bytes` counts only `.log`
    files.
    """

    partitions: int = 0
    offline_partitions: tuple[int, ...] = ()
    segments: int = 0
    size_bytes: int = 0
    rolled_by_time: int = 0
    one_batch_segments: int = 0
    uncleanable_partitions: int = 0
    """The number of partitions that compaction skips because they are damaged."""
    late_transactions: int = 0
    """The number of partitions with a transaction that has been open for longer than the maximum and blocks read_committed
    consumers (KIP-664)."""


def topic_statistics(
    logs: Mapping[TopicPartition, PartitionLog],
    failed: Mapping[TopicPartition, str],
    uncleanable: Container[TopicPartition],
    now_ms: int,
) -> Generator[None, None, dict[str, TopicStatistics]]:
    """Add up the logs' statistics by topic, `AT_ONCE` logs per `yield`. `failed` are the partitions without a log."""
    found: dict[str, TopicStatistics] = defaultdict(TopicStatistics)
    offline = set(failed)
    for count, (key, log) in enumerate(list(logs.items()), 1):
        topic, rolls = found[key.topic], log.statistics
        found[key.topic] = TopicStatistics(
            topic.partitions + 1,
            topic.offline_partitions,
            topic.segments + len(log.segments),
            topic.size_bytes + log.size_bytes,
            topic.rolled_by_time + rolls.rolled_by_time,
            topic.one_batch_segments + rolls.one_batch_segments,
            topic.uncleanable_partitions + (key in uncleanable),
            topic.late_transactions + log.producer_state.has_late_transaction(now_ms),
        )
        if log.offline_reason is not None:
            offline.add(key)
        if not count % AT_ONCE:
            yield
    for key in sorted(offline):
        topic = found[key.topic]
        found[key.topic] = topic._replace(
            partitions=topic.partitions + (key not in logs), offline_partitions=(*topic.offline_partitions, key.partition)
        )
    return dict(sorted(found.items()))
