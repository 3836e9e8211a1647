"""Determines which offsets of a partition must be read so that no record of a time range is missed.

A broker can say where a range begins: all records before the first one at or after `start` are earlier. It cannot say where the
range ends, because a late record may be anywhere after that. So everything up to the high watermark (read_committed: the last
stable offset) is read.

| the broker's answer for `start` | read from |
|---|---|
| an offset | that offset |
| none, and the largest timestamp is before `start` | nothing to read |
| none, but the largest timestamp is `start` or later | the log start: Kafka's "none" is not always true (docs/decisions/0002) |
| none, and the broker cannot report the largest timestamp (before 3.0) | the log start |
| the topic's message format has no timestamps | the log start: older segments may have timestamps |
| an error: the broker is older than 0.10.1 and cannot search | the log start |

The end is requested first, so records that are appended meanwhile are never included.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from tidelog.client.connections.cluster import Cluster
from tidelog.client.reading.offsets import NotFound, OffsetAnswer, list_offsets
from tidelog.errors import ProtocolError, UnsupportedVersionError
from tidelog.model import EARLIEST, LATEST, MAX_TIMESTAMP, Isolation, TopicPartition
from tidelog.reader.time_search import FoundOffset


class PartitionBounds(NamedTuple):
    """A partition's bounds at the time of the request: `[log_start_offset, end_offset)`. The requested records are at or after
    `start_offset`.
    """

    log_start_offset: int
    start_offset: int
    end_offset: int


def bounds_for_times(
    cluster: Cluster, keys: Iterable[TopicPartition], start_ms: int | None, isolation: Isolation
) -> dict[TopicPartition, PartitionBounds]:
    """Return the bounds of the offsets to read for all records with `start_ms <= timestamp` (None: all records). Raises the
    errors of `list_offsets`.
    """
    wanted = list(keys)
    ends = list_offsets(cluster, dict.fromkeys(wanted, LATEST), isolation)
    firsts = list_offsets(cluster, dict.fromkeys(wanted, EARLIEST))
    starts = {} if start_ms is None else _starts(cluster, wanted, start_ms)
    found: dict[TopicPartition, PartitionBounds] = {}
    for key in wanted:
        first, end = _offset(firsts[key], cluster, key), _offset(ends[key], cluster, key)
        start = starts.get(key, first)
        found[key] = PartitionBounds(first, end if start is None else max(first, start), max(first, end))
    return found


def _starts(cluster: Cluster, keys: list[TopicPartition], start_ms: int) -> dict[TopicPartition, int | None]:
    """Return the first offset to read of each partition, None if no record is at or after that time. Partitions that must be read
    from the log start are left out.
    """
    try:
        answers = list_offsets(cluster, dict.fromkeys(keys, start_ms))
    except UnsupportedVersionError:
        return {}
    starts: dict[TopicPartition, int | None] = {
        key: answer.offset for key, answer in answers.items() if isinstance(answer, FoundOffset)
    }
    doubtful = [key for key, answer in answers.items() if answer is NotFound.NOTHING_THAT_LATE]
    if doubtful:
        try:
            latest = list_offsets(cluster, dict.fromkeys(doubtful, MAX_TIMESTAMP))
        except UnsupportedVersionError:
            return starts
        starts.update(
            (key, None) for key, answer in latest.items() if isinstance(answer, FoundOffset) and answer.timestamp < start_ms
        )
    return starts


def _offset(answer: OffsetAnswer, cluster: Cluster, key: TopicPartition) -> int:
    if isinstance(answer, NotFound):
        raise ProtocolError(
            "the broker returned no end offset for a partition", path=str(cluster), found=f"{key.topic}-{key.partition}"
        )
    return answer.offset
