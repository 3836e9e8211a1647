"""One partition's copy into another topic's partition: chunk by chunk, each one transaction, resumed where the last one ended.

| step | the target | the offset map |
|---|---|---|
| begin | the transactional id is claimed: an older copier is fenced, what it left open is aborted | |
| | the position committed in the group `job_id` is read | what is staged is settled by it |
| each chunk | batches are appended, their offsets known | staged |
| | the position of the source is added to the transaction, which commits | confirmed |
| end | the position is the end of what was planned | the same |

So a record is in the target once for readers that read committed, wherever a copier was killed, and the map knows where. The
position is an offset of the source, committed under the *target's* topic and partition (brokers take no offsets of topics that
they do not have); its metadata names the source's. So a target partition has one source partition in a job.

Where the target's brokers have no transactions (before 0.11) a chunk is appended, then its position committed: a copier that
is killed in between appends the chunk a second time. `CopyResult.is_exact` says which of the two it was.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field

from tidelog.client import transactions_supported
from tidelog.client.connections.cluster import Cluster
from tidelog.client.consumer_groups.committed import committed_offsets
from tidelog.client.consumer_groups.groups import commit_offsets
from tidelog.client.produce.batch_appender import Appended, BatchAppender
from tidelog.client.reading.offsets import list_offsets
from tidelog.copying.offset_map import MapRun, OffsetMapWriter
from tidelog.copying.offset_map_file import UNKNOWN_COUNT
from tidelog.copying.source_batches import CopiedBatch, CopyCounts, CopyRules, copied_or_skipped
from tidelog.errors import InvalidArgumentError, OffsetOutOfRangeError, TidelogError, UnsupportedForMessageFormatError
from tidelog.groups.positions import source_position
from tidelog.model import LATEST, TopicPartition
from tidelog.reader.time_search import FoundOffset
from tidelog.sources.split import Split

CHUNK_BYTES = 8 * 1024 * 1024
"""Bytes of one transaction, about: enough that its overhead is small, little enough that killing a copier costs little."""

CHUNK_SECONDS = 5.0
"""A transaction that is open for longer is committed, small as it is: readers of the target wait for it."""

TRANSACTION_TIMEOUT_MS = 120_000
"""The target's coordinator gives a transaction up after that: far more than a source may take to answer."""

CLIENT_ID = "tidelog-copy"

_log = logging.getLogger("tidelog.copying")


@dataclass(frozen=True, slots=True)
class CopyTask:
    """A copy's source and target. Can be pickled; a few hundred bytes a split."""

    job_id: str
    """Names the group that keeps the positions; the transactional id is this with the source's topic and partition."""
    source: TopicPartition
    splits: tuple[Split, ...]
    """Of this partition, in order, from a read_committed plan."""
    start_offset: int
    """Where copying begins if nothing was copied before."""
    end_offset: int
    """Source offset after the last one that was planned: the position at the end."""
    brokers: str
    """The target, `host:port` with commas between."""
    target: TopicPartition
    map_dir: str | None = None
    """Where the offset map is kept; None for none."""
    rules: CopyRules = field(default=CopyRules())
    chunk_bytes: int = CHUNK_BYTES

    @property
    def transactional_id(self) -> str:
        return _transactional_id(self.job_id, self.source)

    @property
    def size_bytes(self) -> int:
        """Bytes of the source that are read, about."""
        return sum(split.size_bytes for split in self.splits)


@dataclass(frozen=True, slots=True)
class CopyResult:
    """The result of one call of `copy_partition`."""

    source: TopicPartition
    target: TopicPartition
    resumed_offset: int
    """Source offset that it began at."""
    next_offset: int
    """Source offset that it came to."""
    chunks: int
    records: int
    batches: int
    rebuilt_batches: int
    """Of the batches: how many are not the source's bytes."""
    size_bytes: int
    without_timestamp: int
    is_exact: bool
    """False if the target has no transactions, and a killed copier may have left records twice."""


def copy_partition(task: CopyTask, *, cluster: Cluster | None = None) -> CopyResult:
    """Copy what is left of a task. `cluster` is the target's, if one is open already.

    Raises:
        ProducerFencedError: another copier with this job id has taken over.
        InvalidArgumentError: the offset map does not belong to what the target says, moved times would be negative.
        SegmentChangedError, OffsetOutOfRangeError: the source lost what was planned, or the target what was copied.
        CorruptDataError: damaged batches, or map.
        RecordTooLargeError, InvalidTimestampError: the target refuses a batch. UnknownTopicOrPartitionError
        BrokerUnreachableError, BrokerError, ProtocolError, StorageError
        Whatever is raised: calling again continues after the last chunk that was committed.
    """
    with ExitStack() as opened:
        if cluster is None:
            cluster = opened.enter_context(Cluster.at(task.brokers, CLIENT_ID))
        if transactions_supported(cluster):
            try:
                return _copy_partition(task, cluster, is_exact=True)
            except UnsupportedForMessageFormatError as error:
                why = f"{task.target.topic} is of a message format without transactions ({error.found})"
        else:
            why = "brokers before 0.11 have no transactions"
        _log.warning("%s: %s: if the copy is killed, a chunk may be duplicated", task.brokers, why)
        return _copy_partition(task, cluster, is_exact=False)


def _copy_partition(task: CopyTask, cluster: Cluster, *, is_exact: bool) -> CopyResult:
    with ExitStack() as opened:
        transactional_id = task.transactional_id if is_exact else None
        appender = opened.enter_context(
            BatchAppender(cluster, transactional_id=transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS)
        )
        # Before the position is read: it must not change any more.
        appender.init()
        committed = committed_positions(cluster, task.job_id, {task.source: task.target}).get(task.source)
        offset_map = None
        if task.map_dir is not None:
            # A position and no map: that was lost. Where the copy began is no longer known, so nothing is said to lie before.
            is_lost = committed is not None and committed <= task.start_offset
            offset_map = opened.enter_context(
                OffsetMapWriter(task.map_dir, task.source, task.target.topic, start_offset=0 if is_lost else task.start_offset)
            )
            committed = offset_map.settle(committed)
            _check_end(cluster, task, offset_map.end_target_offset)
        copier = _Copier(task, cluster, appender, offset_map, max(task.start_offset, committed or 0), is_exact)
        return copier.run()


def _check_end(cluster: Cluster, task: CopyTask, mapped: int) -> None:
    """Raise OffsetOutOfRangeError where the target has less than was copied into it: going on would leave it with a part."""
    found = list_offsets(cluster, {task.target: LATEST})[task.target]
    assert isinstance(found, FoundOffset)
    if found.offset < mapped:
        raise OffsetOutOfRangeError(
            f"{task.target.topic}-{task.target.partition} of the target ends before the last offset copied into it: "
            "if the topic was recreated, start a new job with a new map",
            path=str(cluster),
            found=found.offset,
            expected=f"{mapped} or later",
        )


def committed_positions(
    cluster: Cluster, job_id: str, targets: Mapping[TopicPartition, TopicPartition], *, require_stable: bool = True
) -> dict[TopicPartition, int]:
    """Return how far each source partition of `targets` (source: target) was copied by a job; those never copied are left out.

    A killed copier leaves its transaction open until that times out. Plans are made with `require_stable=False`, which does not
    wait for that: `copy_partition` aborts it, and reads its partition's position again.
    Raises InvalidArgumentError where the target partition got another source's records, and what `committed_offsets` raises.
    """
    found = committed_offsets(cluster, job_id, targets.values(), require_stable=require_stable)
    positions: dict[TopicPartition, int] = {}
    for source, target in targets.items():
        if target not in found:
            continue
        offset, metadata = found[target]
        if metadata != source_position(*source):
            raise InvalidArgumentError(
                f"job {job_id} has copied something else into {target.topic}-{target.partition}",
                path=str(cluster),
                found=metadata,
                expected=source_position(*source),
            )
        positions[source] = offset
    return positions


def settled_position(cluster: Cluster, job_id: str, source: TopicPartition, target: TopicPartition) -> int | None:
    """Return how far a source partition was copied by a job, once nobody can change that any more; None for never.

    A copier of the job that still runs is fenced, the transaction that a killed one has left open is aborted.
    Raises what `committed_positions` and `BatchAppender.init` raise.
    """
    if transactions_supported(cluster):
        transactional_id = _transactional_id(job_id, source)
        with BatchAppender(cluster, transactional_id=transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS) as appender:
            appender.init()
    return committed_positions(cluster, job_id, {source: target}).get(source)


def _transactional_id(job_id: str, source: TopicPartition) -> str:
    return f"{job_id}-{source.topic}-{source.partition}"


class _Copier:
    """The state of one `copy_partition`."""

    def __init__(
        self,
        task: CopyTask,
        cluster: Cluster,
        appender: BatchAppender,
        offset_map: OffsetMapWriter | None,
        position: int,
        is_exact: bool,
    ) -> None:
        self._task = task
        self._cluster = cluster
        self._appender = appender
        self._map = offset_map
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
                # Readers of the target wait for an open transaction. Whatever this meets is not the news.
                if self._is_begun:
                    with suppress(TidelogError):
                        self._appender.abort()
                raise
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
        task, next_offset = self._task, self._position
        for batch in batches:
            if batch is not None:
                self._begin()
                self._appender.append(task.target, batch.data, batch)
                self._chunk_bytes += len(batch.data)
                next_offset = batch.next_offset
            if self._is_begun and (self._chunk_bytes >= task.chunk_bytes or time.monotonic() >= self._latest_end):
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
        """End the chunk: what was appended and the position after it count from now on."""
        appender, task = self._appender, self._task
        appended = appender.flush()
        if self._map is not None:
            self._map.stage(_map_runs(appended), next_offset)
        if self._is_exact:
            appender.send_offsets(task.job_id, {task.target: (next_offset, source_position(*task.source))})
            appender.commit()
        else:
            commit_offsets(self._cluster, task.job_id, {task.target: next_offset}, metadata=source_position(*task.source))
        if self._map is not None:
            self._map.confirm()
        self._position = next_offset
        self._chunks += 1
        self._chunk_bytes = 0
        self._is_begun = False


def _map_runs(appended: Iterable[Appended]) -> Iterator[MapRun]:
    """Yield where each run of source offsets went."""
    known_end = 0
    for one in appended:
        batch = one.tag
        assert isinstance(batch, CopiedBatch)
        if one.base_offset < 0:
            # Appended at a second attempt, and the broker has forgotten where: not before what came before it.
            yield MapRun(batch.runs[0].first, batch.runs[-1].last, one.key.partition, known_end, UNKNOWN_COUNT)
            continue
        target_offset = one.base_offset
        for first, last in batch.runs:
            count = last - first + 1
            yield MapRun(first, last, one.key.partition, target_offset, count, batch.max_timestamp)
            target_offset += count
        known_end = target_offset
