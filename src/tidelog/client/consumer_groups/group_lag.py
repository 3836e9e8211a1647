"""Computes the lag of a group on any Kafka-compatible broker. `groups.lag` explains each number.

| fact | source |
|---|---|
| committed offsets | the group's coordinator |
| log start, readable end | ListOffsets; the end is requested first, so that records appended later do not matter |
| the first record at or after the committed offset | the log, see `next_records` |
| the group's rate | its commits of the last minutes, read from ``__consumer_offsets`` |
| the topic's rate | ListOffsets by time |
| retention | the topic's configuration and size (DescribeLogDirs); only a lower bound, because segments are not visible |
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from tidelog.client.connections.cluster import NO_LEADER, Cluster
from tidelog.client.consumer_groups.groups import committed_offsets, describe_group
from tidelog.client.consumer_groups.modern_groups import ShareOffset, share_offsets
from tidelog.client.consumer_groups.next_records import first_records, next_records
from tidelog.client.reading.offsets import NotFound, OffsetAnswer, list_offsets
from tidelog.client.reading.partition_fetcher import PartitionFetcher
from tidelog.client.reading.sizes import log_sizes
from tidelog.client.reading.topic_configs import retention_configs
from tidelog.clock import Clock
from tidelog.errors import ProtocolError, TidelogError, UnsupportedVersionError
from tidelog.groups.commit_history import Commits, histories_of
from tidelog.groups.description import GroupDescription
from tidelog.groups.group_offsets import CommittedOffset
from tidelog.groups.lag import (
    UNKNOWN_RETENTION,
    GroupRate,
    NextRecord,
    PartitionLag,
    Retention,
    group_rate,
    retention_at_the_earliest,
    topic_rate,
)
from tidelog.groups.modern_groups import SHARE
from tidelog.groups.offsets_topic import partition_of
from tidelog.model import EARLIEST, LATEST, NO_TIMESTAMP, OFFSETS_TOPIC, Isolation, TopicPartition
from tidelog.reader.missing.missing_offsets import MissingOffsets
from tidelog.reader.time_search import FoundOffset
from tidelog.records.records import Bounds, iter_records

WINDOW_MS = 10 * 60 * 1000
"""The default window: rates are averages over the last ten minutes."""

MAX_HISTORY_OFFSETS = 200_000
"""At most this many offsets, the last ones in a partition of ``__consumer_offsets``, are read for a rate. Many groups share the
partition.
"""


class GroupLag(NamedTuple):
    """A group, and its lag in each partition that has a committed offset or is assigned to a member."""

    description: GroupDescription
    partitions: tuple[PartitionLag, ...]
    without_log: tuple[TopicPartition, ...]
    """Partitions of the group whose topic no longer exists, or that have no leader."""
    missing: tuple[MissingOffsets, ...] = ()
    """For a data folder: records of ``__consumer_offsets`` that are missing and could change the result."""


class Ends(NamedTuple):
    """A partition's log start, log end, and the end of its readable records."""

    log_start_offset: int
    high_watermark: int
    end_offset: int


def group_lag(
    cluster: Cluster,
    group: str,
    clock: Clock,
    *,
    isolation: Isolation = "read_committed",
    window_ms: int = WINDOW_MS,
    history: CommitLog | None = None,
) -> GroupLag:
    """Return a group's lag. Rates are averages over the last `window_ms`.

    `history` holds the commits of at least that window, for callers that read the commits of many groups at once
    (`read_commits`). Raises BrokerUnreachableError, BrokerError, UnsupportedVersionError, CorruptDataError. An unknown group has
    the state `Dead` and no partitions.
    """
    description = describe_group(cluster, group)
    shared = share_offsets(cluster, group) if description.type == SHARE else {}
    committed = _starts(shared) if description.type == SHARE else committed_offsets(cluster, group)
    wanted = dict.fromkeys([*committed, *(key for member in description.members for key in member.assignment or ())])
    led = with_leaders(cluster, wanted)
    ends = log_ends(cluster, led, isolation)
    now_ms = clock.now_ms()
    positions = {
        key: (max(committed[key].offset, end.log_start_offset), end.end_offset) for key, end in ends.items() if key in committed
    }
    # A share group with a lag of 0 has processed all records, even if its start offset is before some of them.
    searched = {key: held for key, held in positions.items() if key not in shared or shared[key].lag != 0}
    records = dict.fromkeys(positions) | dict(next_records(cluster, searched, isolation))
    rates = {} if shared else _group_rates(cluster, group, positions, now_ms, window_ms, history)
    growths = _topic_rates(cluster, rates, ends, now_ms)
    taken = _retention(cluster, records, ends, growths, now_ms)
    return GroupLag(
        description,
        tuple(
            _lag(key, ends[key], committed.get(key), shared.get(key), records, rates, growths, taken, now_ms)
            for key in sorted(led)
        ),
        tuple(sorted(wanted.keys() - set(led))),
    )


def _starts(shared: Mapping[TopicPartition, ShareOffset]) -> dict[TopicPartition, CommittedOffset]:
    """Return a share group's start offsets, which replace the committed offsets."""
    return {key: CommittedOffset(one.start_offset, -1, "", NO_TIMESTAMP) for key, one in shared.items()}


def _delivered(shared: ShareOffset | None, ends: Ends) -> int:
    """Return how many records after its start offset a share group has processed, computed from the lag that brokers report."""
    if shared is None or shared.lag < 0:
        return 0
    return max(0, ends.high_watermark - max(shared.start_offset, ends.log_start_offset) - shared.lag)


def with_leaders(cluster: Cluster, keys: Mapping[TopicPartition, object]) -> list[TopicPartition]:
    """Return the partitions that exist and have a leader."""
    topics = cluster.topics() if keys else {}
    led = []
    for key in keys:
        state = None if key.topic not in topics else topics[key.topic].partitions.get(key.partition)
        if state is not None and state.leader.node_id != NO_LEADER:
            led.append(key)
    return led


def log_ends(cluster: Cluster, keys: list[TopicPartition], isolation: Isolation) -> dict[TopicPartition, Ends]:
    """Request the partitions' ends first, then their starts; return both."""
    stable = list_offsets(cluster, dict.fromkeys(keys, LATEST), isolation)
    marks = stable if isolation == "read_uncommitted" else list_offsets(cluster, dict.fromkeys(keys, LATEST))
    starts = list_offsets(cluster, dict.fromkeys(keys, EARLIEST))
    found = {}
    for key in keys:
        start, mark, end = (_offset(answers[key], cluster, key) for answers in (starts, marks, stable))
        found[key] = Ends(start, max(mark, end, start), max(end, start))
    return found


def _offset(answer: OffsetAnswer, cluster: Cluster, key: TopicPartition) -> int:
    if isinstance(answer, NotFound):
        raise ProtocolError(
            "the broker returned no start or end offset for a partition", path=str(cluster), found=f"{key.topic}-{key.partition}"
        )
    return answer.offset


def _lag(
    key: TopicPartition,
    ends: Ends,
    committed: CommittedOffset | None,
    shared: ShareOffset | None,
    records: Mapping[TopicPartition, NextRecord | None],
    rates: Mapping[TopicPartition, GroupRate],
    growths: Mapping[TopicPartition, float],
    taken: Mapping[TopicPartition, Retention],
    now_ms: int,
) -> PartitionLag:
    rate = rates.get(key)
    return PartitionLag(
        topic=key.topic,
        partition=key.partition,
        now_ms=now_ms,
        committed_offset=None if committed is None else committed.offset,
        metadata="" if committed is None else committed.metadata,
        delivered=_delivered(shared, ends),
        log_start_offset=ends.log_start_offset,
        end_offset=ends.end_offset,
        high_watermark=ends.high_watermark,
        next_record=records.get(key),
        group_per_second=None if rate is None else rate.per_second,
        topic_per_second=growths.get(key),
        retention=taken.get(key, UNKNOWN_RETENTION),
    )


# --- The group's rate ---


class CommitLog(NamedTuple):
    """Commits of groups read from ``__consumer_offsets``, oldest first."""

    commits: Mapping[str, Commits]
    is_whole: bool
    """Whether these are all commits since the requested time. False if some could not be read, or exceeded the limit."""


def read_commits(cluster: Cluster, groups: Iterable[str], since_ms: int) -> CommitLog | None:
    """Return the commits of groups since a time (epoch ms). The groups must share a partition of ``__consumer_offsets``.

    Return None if that topic cannot be read, for example because the client is not authorized.
    """
    names = list(groups)
    try:
        count = len(cluster.topic_now(OFFSETS_TOPIC).partitions)
        (partition,) = {partition_of(group, count) for group in names}
        return _read_commits(cluster, TopicPartition(OFFSETS_TOPIC, partition), names, max(0, since_ms))
    except TidelogError:
        return None


def _group_rates(
    cluster: Cluster,
    group: str,
    keys: Mapping[TopicPartition, object],
    now_ms: int,
    window_ms: int,
    history: CommitLog | None,
) -> dict[TopicPartition, GroupRate]:
    """Return the group's rate in each partition; empty if rates are unknown, for example because the offsets topic cannot be
    read.
    """
    since_ms = max(0, now_ms - window_ms)
    history = history or read_commits(cluster, [group], since_ms)
    if history is None:
        return {}
    commits = history.commits[group]
    found = {}
    for key in keys:
        # No commit is missed: the coordinator's clock sets the timestamps of both commits and records.
        known = [one for one in commits.get(key, ()) if one.time_ms >= since_ms]
        rate = group_rate(known, now_ms, window_ms) if known or history.is_whole else None
        if rate is not None:
            found[key] = rate
    return found


def _read_commits(cluster: Cluster, key: TopicPartition, groups: list[str], since_ms: int) -> CommitLog:
    answer = list_offsets(cluster, {key: since_ms})[key]
    if isinstance(answer, NotFound):
        return CommitLog({group: {} for group in groups}, answer is NotFound.NOTHING_THAT_LATE)
    stable, end = (
        _offset(list_offsets(cluster, {key: LATEST}, isolation)[key], cluster, key)
        for isolation in ("read_committed", "read_uncommitted")
    )
    start = max(answer.offset, end - MAX_HISTORY_OFFSETS)
    return CommitLog(histories_of(groups, _records(cluster, key, start, stable, end)), start == answer.offset)


def _records(
    cluster: Cluster, key: TopicPartition, start: int, stable: int, end: int
) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Yield the commits that took effect. Transactional commits after the start of an open transaction are undecided and left
    out.
    """
    place = f"{cluster} {key.topic}-{key.partition}"
    sound = PartitionFetcher(cluster, key, start, stable, isolation="read_committed")
    rest = PartitionFetcher(cluster, key, max(start, stable), end)
    for is_stable, fetcher in ((True, sound), (False, rest)):
        bounds = Bounds(None, None, fetcher.position, stable if is_stable else end)
        for header, records, at in fetcher:
            if is_stable or not header.is_transactional:
                for record in iter_records(header, records[at : at + header.size], path=place, bounds=bounds):
                    yield record.key, record.value


# --- The topic's rate ---


def _topic_rates(
    cluster: Cluster, rates: Mapping[TopicPartition, GroupRate], ends: Mapping[TopicPartition, Ends], now_ms: int
) -> dict[TopicPartition, float]:
    try:
        answers = list_offsets(cluster, {key: max(0, rate.since_ms) for key, rate in rates.items()})
    except UnsupportedVersionError:
        return {}
    # The lag in time begins at the first remaining record.
    young = {
        key: ends[key].log_start_offset
        for key, answer in answers.items()
        if isinstance(answer, FoundOffset) and answer.timestamp > rates[key].since_ms
    }
    firsts = first_records(cluster, young, "read_uncommitted")
    found = {}
    for key, answer in answers.items():
        if answer is NotFound.NO_TIMESTAMPS:
            continue
        then = NextRecord(answer.offset, answer.timestamp) if isinstance(answer, FoundOffset) else None
        rate = topic_rate(firsts.get(key), then, ends[key].high_watermark, rates[key].since_ms, now_ms)
        if rate is not None:
            found[key] = rate
    return found


# --- Retention ---


def _retention(
    cluster: Cluster,
    records: Mapping[TopicPartition, NextRecord | None],
    ends: Mapping[TopicPartition, Ends],
    growths: Mapping[TopicPartition, float],
    now_ms: int,
) -> dict[TopicPartition, Retention]:
    configs = retention_configs(cluster, (key.topic for key in records))
    sized = [key for key in records if key.topic in configs and configs[key.topic].retention_bytes >= 0]
    sizes = log_sizes(cluster, sized)
    found = {}
    for key, record in records.items():
        config = configs.get(key.topic)
        if config is None:
            continue
        behind = per_second = None
        count = ends[key].high_watermark - ends[key].log_start_offset
        if key in sizes and record is not None and count > 0:
            # Brokers do not report where in the log the bytes are: assume that they are spread evenly.
            bytes_each = sizes[key] / count
            behind = round(bytes_each * (ends[key].high_watermark - record.offset))
            per_second = None if key not in growths else growths[key] * bytes_each
        found[key] = retention_at_the_earliest(config, record, now_ms, bytes_behind=behind, bytes_per_second=per_second)
    return found
