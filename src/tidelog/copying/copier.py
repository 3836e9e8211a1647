"""Copies one partition into a partition of another topic: in chunks, each a transaction, resumed after the last one.

| step | the target | the offset map |
|---|---|---|
| begin | the transactional id is initialized, which fences an older copier and aborts its transaction | |
| | the position committed in the group `job_id` is read | the staged chunk is settled |
| each chunk | batches are appended, so their offsets are known | the chunk is staged |
| | the source position is added to the transaction, which commits | the chunk is confirmed |
| end | the position is the end of the plan | its position is the end of the plan |

So read_committed readers see each record in the target once, at whatever step a copier was killed, and the map has the record's
offset. The position is an offset of the source. It is committed under the *target's* topic and partition, because brokers refuse
offsets of topics that they do not have; its metadata names the source's partition. A target partition therefore has one source
partition per job.

If records are spread over the target's partitions (`spreading`), each source partition has its own group, and an offset map for
each of the target's partitions (`spread_folder`).

If the target's brokers do not support transactions (before 0.11), a chunk is appended, then its position is committed. If the
copier is killed between these steps, the chunk is duplicated. `CopyResult.is_exact` is False then.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tidelog.client import transactions_supported
from tidelog.client.connections.cluster import Cluster
from tidelog.client.consumer_groups.committed import committed_offsets
from tidelog.client.consumer_groups.groups import commit_offsets
from tidelog.client.produce.batch_appender import Appended, BatchAppender
from tidelog.client.reading.offsets import list_offsets
from tidelog.copying.copy_plan import CLIENT_ID
from tidelog.copying.offset_map import MapRun, OffsetMapWriter
from tidelog.copying.offset_map_file import UNKNOWN_COUNT
from tidelog.copying.source_batches import CopiedBatch, CopyCounts, CopyRules, copied_or_skipped
from tidelog.errors import InvalidArgumentError, OffsetOutOfRangeError, TidelogError, UnsupportedForMessageFormatError
from tidelog.groups.positions import source_position
from tidelog.model import LATEST, TopicPartition
from tidelog.reader.time_search import FoundOffset
from tidelog.sources.split import Split

CHUNK_BYTES = 8 * 1024 * 1024
"""The approximate size of a transaction in bytes: large enough that its overhead is small, small enough to repeat after a crash.
"""

CHUNK_SECONDS = 5.0
"""A transaction that has been open for this long is committed, however small, because the target's readers wait for it."""

TRANSACTION_TIMEOUT_MS = 120_000
"""The transaction timeout: far longer than a source takes to answer."""

_ACKNOWLEDGED = bytearray()

_log = logging.getLogger("tidelog.copying")


@dataclass(frozen=True, slots=True)
class CopyTask:
    """A copy's source and target. Can be pickled; a few hundred bytes per split."""

    job_id: str
    """The group that stores the positions. The transactional id consists of this and the source's topic and partition."""
    source: TopicPartition
    splits: tuple[Split, ...]
    """The partition's splits, in order, from a read_committed plan."""
    start_offset: int
    """The source offset at which copying begins if nothing has been copied yet."""
    end_offset: int
    """The source offset after the last planned one: the final position."""
    brokers: str
    """The target, `host:port` separated by commas."""
    target: TopicPartition
    map_dir: str | None = None
    """The folder of the offset map; None for no map."""
    rules: CopyRules = field(default=CopyRules())
    chunk_bytes: int = CHUNK_BYTES

    @property
    def transactional_id(self) -> str:
        return _transactional_id(self.job_id, self.source)

    @property
    def position_group(self) -> str:
        """The group that stores the position."""
        return self.job_id if self.rules.spread is None else spread_group(self.job_id, self.source)

    @property
    def position_key(self) -> TopicPartition:
        """The target's partition under which the position is stored."""
        return self.target if self.rules.spread is None else TopicPartition(self.target.topic, 0)

    @property
    def targets(self) -> list[TopicPartition]:
        """The target's partitions that this task writes to."""
        spread = self.rules.spread
        return [self.target] if spread is None else [TopicPartition(self.target.topic, n) for n in range(spread.partitions)]

    @property
    def size_bytes(self) -> int:
        """The approximate number of bytes to be read from the source."""
        return sum(split.size_bytes for split in self.splits)


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The result of one call to `copy_partition`."""

    source: TopicPartition
    target: TopicPartition
    resumed_offset: int
    """The source offset at which this call began."""
    next_offset: int
    """The source offset that this call reached."""
    chunks: int
    records: int
    batches: int
    rebuilt_batches: int
    """The number of rebuilt batches: their bytes differ from the source's."""
    size_bytes: int
    without_timestamp: int
    is_exact: bool
    """False if the target has no transactions, so that a killed copier may have duplicated records."""


def copy_partition(task: CopyTask, *, cluster: Cluster | None = None) -> CopyResult:
    """Copy the records of a task that have not been copied yet. `cluster` is the target cluster, if it is already open.

    Raises:
        ProducerFencedError: another copier with this job id has taken over.
        InvalidArgumentError: the offset map does not fit the target's position, or shifted times are out of range.
        SegmentChangedError, OffsetOutOfRangeError: the source has lost planned records, or the target has lost copied records.
        CorruptDataError: damaged batches, or a damaged map.
        RecordTooLargeError, InvalidTimestampError: the target refuses a batch. UnknownTopicOrPartitionError
        BrokerUnreachableError, BrokerError, ProtocolError, StorageError
        After any error, calling again continues after the last committed chunk.
    """
    with ExitStack() as opened:
        if cluster is None:
            cluster = opened.enter_context(Cluster.at(task.brokers, CLIENT_ID))
        if transactions_supported(cluster):
            try:
                return _copy_partition(task, cluster, is_exact=True)
            except UnsupportedForMessageFormatError as error:
                why = f"topic {task.target.topic} has message format v0 or v1, which has no transactions ({error.found})"
        else:
            why = "brokers before Kafka 0.11 do not support transactions"
        _log.warning("%s: %s: if the copy is killed, its last chunk may be duplicated", task.brokers, why)
        return _copy_partition(task, cluster, is_exact=False)


def _copy_partition(task: CopyTask, cluster: Cluster, *, is_exact: bool) -> CopyResult:
    with ExitStack() as opened:
        transactional_id = task.transactional_id if is_exact else None
        appender = opened.enter_context(
            BatchAppender(cluster, transactional_id=transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
        )
        # Fence other copiers before the position is read, so that it cannot change afterwards.
        appender.init()
        committed = committed_positions(cluster, task.position_group, {task.source: task.position_key}).get(task.source)
        maps: dict[int, OffsetMapWriter] = {}
        for target in task.targets if task.map_dir is not None else ():
            folder = Path(task.map_dir or "")
            if task.rules.spread is not None:
                folder = spread_folder(folder, target.partition)
            # A position without a map means that the map was lost. The start of the copy is unknown: assume offset 0.
            is_lost = committed is not None and committed <= task.start_offset
            offset_map = maps[target.partition] = opened.enter_context(
                OffsetMapWriter(folder, task.source, task.target.topic, start_offset=0 if is_lost else task.start_offset)
            )
            committed = offset_map.settle(committed)
            _check_end(cluster, target, offset_map.end_target_offset)
        copier = _Copier(task, cluster, appender, maps, max(task.start_offset, committed or 0), is_exact)
        return copier.run()


def _check_end(cluster: Cluster, target: TopicPartition, mapped: int) -> None:
    """Raise OffsetOutOfRangeError if the target has fewer records than were copied into it: continuing would leave a gap."""
    found = list_offsets(cluster, {target: LATEST})[target]
    assert isinstance(found, FoundOffset)
    if found.offset < mapped:
        raise OffsetOutOfRangeError(
            f"{target.topic}-{target.partition} of the target ends before the last offset copied into it: "
            "if the topic was recreated, start a new job with a new map",
            path=str(cluster),
            found=found.offset,
            expected=f"{mapped} or later",
        )


def committed_positions(
    cluster: Cluster, job_id: str, targets: Mapping[TopicPartition, TopicPartition], *, require_stable: bool = True
) -> dict[TopicPartition, int]:
    """Return a job's position in each source partition of `targets` (source: target); partitions never copied are left out.

    A killed copier's transaction is open until it times out. Plans use `require_stable=False`, which does not wait for that:
    `copy_partition` aborts the transaction and reads the position again. Raises InvalidArgumentError if the job has copied a
    different source partition into the target partition, and the errors of `committed_offsets`.
    """
    found = committed_offsets(cluster, job_id, targets.values(), require_stable=require_stable)
    positions: dict[TopicPartition, int] = {}
    for source, target in targets.items():
        if target not in found:
            continue
        offset, metadata = found[target]
        if metadata != source_position(*source):
            raise InvalidArgumentError(
                f"job {job_id} has copied a different source partition into {target.topic}-{target.partition}",
                path=str(cluster),
                found=metadata,
                expected=source_position(*source),
            )
        positions[source] = offset
    return positions


def settled_position(cluster: Cluster, job_id: str, source: TopicPartition, target: TopicPartition) -> int | None:
    """Return a job's final position in a source partition, None if the partition was never copied.

    A running copier of the job is fenced, and the open transaction of a killed one is aborted. Raises the errors of
    `committed_positions` and `BatchAppender.init`.
    """
    if transactions_supported(cluster):
        transactional_id = _transactional_id(job_id, source)
        with BatchAppender(cluster, transactional_id=transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS) as appender:
            appender.init()
    return committed_positions(cluster, job_id, {source: target}).get(source)


def spread_group(job_id: str, source: TopicPartition) -> str:
    """Return the group that stores the position of a source partition that is spread over several target partitions."""
    return f"{job_id}-{source.partition}"


def spread_folder(folder: Path, partition: int) -> Path:
    """Return the folder with the offset maps for `partition` of the target, if records are spread over several."""
    return folder / f"to-{partition}"


def _transactional_id(job_id: str, source: TopicPartition) -> str:
    return f"{job_id}-{source.topic}-{source.partition}"


class _Copier:
    """The state of one call to `copy_partition`."""

    def __init__(
        self,
        task: CopyTask,
        cluster: Cluster,
        appender: BatchAppender,
        maps: Mapping[int, OffsetMapWriter],
        position: int,
        is_exact: bool,
    ) -> None:
        self._task = task
        self._cluster = cluster
        self._appender = appender
        self._maps = maps
        self._start = self._position = position
        self._is_exact = is_exact
        self._chunks = 0
        self._is_begun = False
        self._latest_end = 0.0
        self._chunk_bytes = 0

    def run(self) -> CopyResult:
        task, counts = self._task, CopyCounts()
        if self._position < task.end_offset:
            try:
                self._copy(copied_or_skipped(task.splits, task.rules, self._position, counts))
            except BaseException:
                # Readers of the target wait for an open transaction. Errors here must not hide the original one.
                if self._is_begun:
                    with suppress(TidelogError):
                        self._appender.abort()
                raise
            if self._is_exact:
                # Otherwise a reader that counts the copied records next would miss the last ones.
                self._appender.wait_until_visible()
        return CopyResult(
            task.source,
            task.target,
            self._start,
            self._position,
            self._chunks,
            counts.records,
            counts.batches,
            counts.rebuilt_batches,
            counts.size_bytes,
            counts.without_timestamp,
            self._is_exact,
        )

    def _copy(self, batches: Iterable[CopiedBatch | None]) -> None:
        task, next_offset, is_whole = self._task, self._position, True
        for batch in batches:
            if batch is not None:
                self._begin()
                target = task.target if batch.partition is None else TopicPartition(task.target.topic, batch.partition)
                # The result must not keep the bytes: a transaction has many.
                self._appender.append(target, batch.data, batch._replace(data=_ACKNOWLEDGED))
                self._chunk_bytes += len(batch.data)
                is_whole = batch.next_offset >= 0
                next_offset = max(next_offset, batch.next_offset)
            if self._is_begun and is_whole and (self._chunk_bytes >= task.chunk_bytes or time.monotonic() >= self._latest_end):
                self._commit(next_offset)
        if next_offset < task.end_offset or self._is_begun:
            self._begin()
            self._commit(max(next_offset, task.end_offset))

    def _begin(self) -> None:
        if not self._is_begun:
            self._is_begun = True
            self._latest_end = time.monotonic() + CHUNK_SECONDS
            if self._is_exact:
                self._appender.begin()

    def _commit(self, next_offset: int) -> None:
        """End the chunk: commit its batches and the position after it."""
        appender, task = self._appender, self._task
        appended = appender.flush()
        for partition, one in self._maps.items():
            one.stage(_map_runs(done for done in appended if done.key.partition == partition), next_offset)
        if self._is_exact:
            appender.send_offsets(task.position_group, {task.position_key: (next_offset, source_position(*task.source))})
            appender.commit()
        else:
            position = {task.position_key: next_offset}
            commit_offsets(self._cluster, task.position_group, position, metadata=source_position(*task.source))
        for one in self._maps.values():
            one.confirm()
        self._position = next_offset
        self._chunks += 1
        self._chunk_bytes = 0
        self._is_begun = False


def _map_runs(appended: Iterable[Appended]) -> Iterator[MapRun]:
    """Yield the target offsets of each run of source offsets."""
    known_end = 0
    for one in appended:
        batch = one.tag
        assert isinstance(batch, CopiedBatch)
        if one.base_offset < 0:
            # The batch was resent, and the broker no longer knows its offset. It is certainly after the previous batch.
            yield MapRun(batch.runs[0].first, batch.runs[-1].last, one.key.partition, known_end, UNKNOWN_COUNT)
            continue
        target_offset = one.base_offset
        for first, last in batch.runs:
            count = last - first + 1 if batch.partition is None else batch.record_count
            yield MapRun(first, last, one.key.partition, target_offset, count, batch.max_timestamp)
            target_offset += count
        known_end = target_offset
