"""The groups in a data folder without a broker: their state and lag, from the files alone.

The numbers are those of `tidelog.groups.lag`, as brokers report them for the same logs. One number is more precise: the time at
which retention deletes unread records is exact, because the segments can be read.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby, takewhile
from operator import itemgetter

from tidelog.client.consumer_groups.group_lag import GroupLag
from tidelog.clock import Clock
from tidelog.errors import UnsupportedForMessageFormatError
from tidelog.groups.commit_history import CommitHistory
from tidelog.groups.description import GroupListing, dead, describe_stored, list_stored
from tidelog.groups.group_offsets import CommittedOffset
from tidelog.groups.group_table import GroupTable, Observer, StoredGroup
from tidelog.groups.lag import (
    NEVER_TAKEN,
    NOTHING_UNREAD,
    UNKNOWN_RETENTION,
    GroupRate,
    NextRecord,
    PartitionLag,
    Precision,
    Retention,
    first_in,
    group_rate,
    topic_rate,
)
from tidelog.groups.modern_groups import SHARE
from tidelog.groups.offsets_topic import partition_of
from tidelog.groups.share_progress import Progress, ShareProgress, ShareStates
from tidelog.model import NO_TIMESTAMP, OFFSETS_TOPIC, SHARE_GROUPS_TOPIC, Isolation, TopicPartition
from tidelog.reader.log import Log
from tidelog.reader.log_dir import LogDir
from tidelog.reader.missing.missing_offsets import MissingOffsets
from tidelog.reader.segment import Segment
from tidelog.reader.time_search import find_offset
from tidelog.records.batch import BatchHeader, check_crc
from tidelog.records.state_batches import StateBatch, state_batches
from tidelog.sources.files.topic_names import TopicNames
from tidelog.sources.groups import GroupBundle, Groups
from tidelog.storage.retention_forecast import ABOVE_HIGH_WATERMARK, forecast
from tidelog.storage.topics.topic_settings import TopicSettings

logger = logging.getLogger("tidelog.groups")


READ_BYTES = 1 << 20
"""Bytes of ``__consumer_offsets`` per read. A larger batch is read whole."""


class FolderGroups(Groups):
    """The groups of one data folder, given as a path or as an open `LogDir`.

    With `until_ms`, the groups are as they were at that time (epoch ms), judged by the commits appended until then. The log ends
    are always the current ones.

    Raises DataDirNotFoundError if it is not a data folder, CorruptDataError, ProtocolError.
    """

    def __init__(self, folder: str | LogDir, until_ms: int | None = None) -> None:
        self._until_ms = until_ms
        self._log_dir = folder if isinstance(folder, LogDir) else LogDir(folder)
        self._topics = self._log_dir.topics()
        self._settings = TopicSettings(self._log_dir.metadata_path)
        self._unknown_configs: set[str] = set()
        self._has_noted = False

    def at(self, time_ms: int) -> Groups:
        return FolderGroups(self._log_dir, time_ms)

    @property
    def unknown_configs(self) -> Collection[str]:
        return self._unknown_configs

    def stored(self, only: str | None = None, observe: Observer | None = None) -> dict[str, StoredGroup]:
        """Return all groups, or only group `only`, as a coordinator that starts on the folder would load them. `observe` is
        passed on to `GroupTable`.
        """
        groups: dict[str, StoredGroup] = {}
        for partition in self.offsets_partitions():
            for name, one in self._read(partition, only, observe).items():
                # A group can be in two partitions if partitions were added. Then use the partition that the group's name maps to.
                if name not in groups or partition_of(name, self._offsets_count) == partition:
                    groups[name] = one
        return groups

    def list(self) -> Sequence[GroupListing]:
        return list_stored(self.stored())

    def describe(self, group: str, clock: Clock, isolation: Isolation, window_ms: int) -> GroupLag:
        """Return a group's lag. The lag's `missing` includes commits that are missing from the folder."""
        now_ms = clock.now_ms()
        history = CommitHistory(now_ms - window_ms)
        stored = self.stored(group, history.read).get(group)
        found = self._group_lag(group, stored, history, now_ms, isolation, window_ms)
        return found._replace(missing=(*self.missing_commits([group]), *found.missing))

    def missing_commits(self, groups: Iterable[str] | None = None) -> Sequence[MissingOffsets]:
        own = None if groups is None else {partition_of(group, self._offsets_count) for group in groups}
        return [one for one in self._missing_commits if own is None or one.partition in own]

    @cached_property
    def _missing_commits(self) -> Sequence[MissingOffsets]:
        return self._log_dir.missing(OFFSETS_TOPIC)

    @cached_property
    def _offsets_count(self) -> int:
        """The number of partitions of ``__consumer_offsets``, derived from the partitions that exist or that a checkpoint
        names.
        """
        lost = (one.partition for one in self._log_dir.missing_partitions(OFFSETS_TOPIC))
        return 1 + max((*self.offsets_partitions(), *lost), default=0)

    def offsets_partitions(self) -> Sequence[int]:
        """Return the partitions of ``__consumer_offsets`` that are in the folder."""
        return tuple(self._topics.get(OFFSETS_TOPIC, ()))

    def committed(self, groups: Iterable[str]) -> Mapping[str, Mapping[TopicPartition, int]]:
        stored = self.stored()
        found = {name: dict(stored[name].offsets.all()) for name in groups if name in stored}
        return {name: {key: one.offset for key, one in offsets.items()} for name, offsets in found.items() if offsets}

    def bundles(self, wanted: tuple[str, ...] | None) -> Sequence[GroupBundle]:
        """Return one bundle for each partition of ``__consumer_offsets``, so that each partition is read once."""
        return [GroupBundle(partition, wanted) for partition in self.offsets_partitions()]

    def lags(self, bundle: GroupBundle, clock: Clock, isolation: Isolation, window_ms: int) -> Iterator[GroupLag]:
        now_ms = clock.now_ms()
        history = CommitHistory(now_ms - window_ms)
        groups = self._read(bundle.offsets_partition, None, history.read)
        for name in sorted(groups):
            if bundle.groups is None or name in bundle.groups:
                yield self._group_lag(name, groups[name], history, now_ms, isolation, window_ms)

    def _group_lag(
        self, group: str, stored: StoredGroup | None, history: CommitHistory, now_ms: int, isolation: Isolation, window_ms: int
    ) -> GroupLag:
        if stored is None:
            return GroupLag(dead(group), (), ())
        described = describe_stored(group, stored, self._topic_names.of)
        shared = self._shared(group) if described.type == SHARE else {}
        committed = dict(sorted(stored.offsets.all())) | {key: _start_of(one) for key, one in shared.items()}
        wanted = dict.fromkeys([*committed, *(key for member in described.members for key in member.assignment or ())])
        there = [key for key in wanted if key.partition in self._topics.get(key.topic, ())]
        lags: list[PartitionLag] = []
        missing: list[MissingOffsets] = []
        for key in sorted(there):
            rate = None
            if key in committed and key not in shared:
                # Transactional commits appear when their transactions end.
                commits = sorted(history.of(group).get(key, ()), key=lambda one: one.time_ms)
                rate = group_rate(commits, now_ms, window_ms)
            with self._log_dir.log(*key) as log:
                lags.append(self._lag(key, log, committed.get(key), shared.get(key), rate, isolation, now_ms))
                # Missing records before the group's position do not change its lag.
                end, offset = lags[-1].high_watermark, lags[-1].committed_offset
                missing += self._log_dir.missing_of(log, end if offset is None else min(offset, end))
        gone = wanted.keys() - set(there)
        if gone:
            missing += [one for one in self._log_dir.missing_partitions() if TopicPartition(one.topic, one.partition) in gone]
        return GroupLag(described, tuple(lags), tuple(sorted(gone)), tuple(missing))

    def _read(self, partition: int, only: str | None, observe: Observer | None) -> dict[str, StoredGroup]:
        table = GroupTable(only, observe)
        with self._log_dir.log(OFFSETS_TOPIC, partition) as log:
            table.read(batches_of(log, until_ms=self._until_ms))
        groups = table.all_groups()
        self._note_unread(table.unread)
        return groups

    def _note_unread(self, unread: Counter[str]) -> None:
        """Log which records about groups cannot be read. Log this only once, because all other partitions will have the same
        problem.
        """
        if unread and not self._has_noted:
            self._has_noted = True
            shown = ", ".join(f"{what} ({count})" for what, count in sorted(unread.items()))
            logger.warning("some records about groups cannot be read, so groups or members may be missing: %s", shown)

    def _shared(self, group: str) -> dict[TopicPartition, ShareProgress]:
        """Return a share group's progress in each partition."""
        found = self._share_progress.get(group, {})
        return {TopicPartition(self._topic_names.of(key.topic_id), key.partition): one for key, one in sorted(found.items())}

    @cached_property
    def _share_progress(self) -> Progress:
        states = ShareStates()
        for partition in self._topics.get(SHARE_GROUPS_TOPIC, ()):
            with self._log_dir.log(SHARE_GROUPS_TOPIC, partition) as log:
                states.read(batches_of(log, until_ms=self._until_ms))
        self._note_unread(states.unread)
        return states.progress()

    @cached_property
    def _topic_names(self) -> TopicNames:
        return TopicNames(self._log_dir)

    def _lag(
        self,
        key: TopicPartition,
        log: Log,
        committed: CommittedOffset | None,
        shared: ShareProgress | None,
        rate: GroupRate | None,
        isolation: Isolation,
        now_ms: int,
    ) -> PartitionLag:
        start = log.log_start_offset
        mark = log.log_end_offset if log.high_watermark is None else log.high_watermark
        end = log.last_stable_offset if isolation == "read_committed" else mark
        offset = None if committed is None else committed.offset if shared is None else shared.next_offset
        record = None if offset is None else next_record(log, max(offset, start), end, isolation)
        return PartitionLag(
            topic=key.topic,
            partition=key.partition,
            now_ms=now_ms,
            committed_offset=None if committed is None else committed.offset,
            metadata="" if committed is None else committed.metadata,
            delivered=0 if shared is None else shared.delivered,
            log_start_offset=start,
            end_offset=end,
            high_watermark=mark,
            next_record=record,
            group_per_second=None if rate is None else rate.per_second,
            topic_per_second=None if rate is None else _growth(log, start, mark, rate.since_ms, now_ms),
            retention=UNKNOWN_RETENTION if committed is None else self._retention(log, record, now_ms),
        )

    def _retention(self, log: Log, record: NextRecord | None, now_ms: int) -> Retention:
        if record is None:
            return NOTHING_UNREAD
        settings = self._settings.of(log.topic)
        if not settings.is_known:
            self._unknown_configs.add(log.topic)
        config = settings.config
        (held,) = [one for one in forecast(log, config, now_ms) if one.base_offset <= record.offset < one.next_offset]
        if held.goes_ms is not None:
            return Retention(Precision.EXACT, held.goes_ms)
        # Retention by size deletes nothing while nothing is appended. That may change if a broker serves the folder again.
        is_open = held.reason == ABOVE_HIGH_WATERMARK or (config.is_deleted and config.retention_bytes >= 0)
        return UNKNOWN_RETENTION if is_open else NEVER_TAKEN


def _start_of(progress: ShareProgress) -> CommittedOffset:
    """Return a share group's start offset in the form of a committed offset, which share groups do not have."""
    return CommittedOffset(progress.start_offset, -1, "", NO_TIMESTAMP)


def batches_of(log: Log, end_offset: int | None = None, *, until_ms: int | None = None) -> Iterator[StateBatch]:
    """Yield the batches of a partition of ``__consumer_offsets``, read in pieces of `READ_BYTES`. Stop at `end_offset`, and
    before the first batch with a timestamp after `until_ms`. With None for both, yield all batches.

    Raises CorruptDataError.
    """
    wanted = log.segment_headers(end_offset=end_offset)
    if until_ms is not None:
        wanted = takewhile(lambda found: found[1].max_timestamp <= until_ms, wanted)
    for segment, headers in groupby(wanted, key=itemgetter(0)):
        piece: list[BatchHeader] = []
        for _, header in headers:
            if piece and header.end_position - piece[0].position > READ_BYTES:
                yield from _piece(segment, piece)
                piece = []
            piece.append(header)
        yield from _piece(segment, piece)


def _piece(segment: Segment, headers: Sequence[BatchHeader]) -> Iterator[StateBatch]:
    start = headers[0].position
    data = segment.file.read(start, headers[-1].end_position - start)
    return state_batches(headers, data, segment.log_path, start=start)


def _given_batches(log: Log, start_offset: int, end_offset: int, isolation: Isolation) -> Iterable[tuple[Segment, BatchHeader]]:
    """Yield the batches in the range that have data for consumers."""
    for segment, header in log.segment_headers(start_offset, end_offset):
        is_aborted = isolation == "read_committed" and header.is_transactional and _is_aborted(log, header)
        if header.is_control or is_aborted:
            check_crc(header, segment.read_batch(header), segment.log_path)
            continue
        yield segment, header


def _is_aborted(log: Log, header: BatchHeader) -> bool:
    return any(
        txn.producer_id == header.producer_id and txn.first_offset <= header.base_offset and header.last_offset <= txn.last_offset
        for txn in log.aborted_transactions(header.base_offset, header.next_offset)
    )


def next_record(log: Log, position: int, end_offset: int, isolation: Isolation) -> NextRecord | None:
    """Return the first record in `[position, end_offset)` that a consumer gets, or None. Raises CorruptDataError."""
    for segment, header in _given_batches(log, position, end_offset, isolation):
        found = first_in(header, segment.read_batch(header), position, end_offset, path=str(segment.log_path))
        if found is not None:
            return found
    return None


def _growth(log: Log, start: int, end: int, since_ms: int, now_ms: int) -> float | None:
    try:
        found = find_offset(log, max(0, since_ms))
    except UnsupportedForMessageFormatError:
        return None
    then = None if found is None else NextRecord(found.offset, found.timestamp)
    first = None if then is None or then.timestamp <= since_ms else next_record(log, start, end, "read_uncommitted")
    return topic_rate(first, then, end, since_ms, now_ms)
