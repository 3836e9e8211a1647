"""Reads one partition for a fetch, after checks that may give an error code (KIP-98, KIP-107, KIP-320, KIP-595).

| check, in this order | result |
|---|---|
| the partition, topic or topic id is unknown | UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID; the fetch may wait for others |
| the topic of that name now has a different id | INCONSISTENT_TOPIC_ID |
| the client has an older or a newer leader epoch | FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH |
| this broker does not lead the partition; the client is a follower, or a consumer before version 11 | NOT_LEADER_OR_FOLLOWER |
| the client is a follower that is not a replica | UNKNOWN_LEADER_EPOCH, or NOT_LEADER_OR_FOLLOWER without an epoch |
| a follower's log diverges from this one | the diverging epoch and its end offset, and no records |
| the offset is below the log start or above the log end | OFFSET_OUT_OF_RANGE |
| the partition is offline, or its disk fails | KAFKA_STORAGE_ERROR |

Reads do not wait for a disk: bytes that are not in memory raise `NotCachedError`, see `formats.non_blocking_read`. Large reads
are sent straight from mapped files, small ones are copied. The most recently used mappings are kept.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from typing import NamedTuple

from tidelog.broker.fetch.fetch_sessions import NO_ID, FetchedPartition
from tidelog.broker.partitions.leadership import NO_EPOCH, Leadership
from tidelog.broker.requests.listeners import Listener
from tidelog.errors import InvalidArgumentError, OffsetOutOfRangeError, TidelogError
from tidelog.formats.non_blocking_read import NotCachedError
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition.offset_metadata import LogOffsetMetadata
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partition.watermarks import FetchIsolation
from tidelog.storage.segment.log_file import LogFile
from tidelog.storage.segment.log_file_reader import MIN_MAPPED_BYTES
from tidelog.wire.error_codes import ErrorCode, error_code_of
from tidelog.wire.messages.fetch import AbortedTransaction, EpochEndOffset, FetchableTopicResponse, PartitionData

logger = logging.getLogger("tidelog.broker")

MAX_MAPPED_FILES = 256

NOTHING_NEW = PartitionData()
"""A placeholder result for a partition of a session that has nothing new. It is never sent."""

_NO_ERROR = 0

_FIRST_FROM_FOLLOWERS = 11
"""Since this version, consumers may read from followers (KIP-392)."""


class FetchParams(NamedTuple):
    """Parameters of a fetch that apply to all of its partitions."""

    version: int
    is_follower: bool
    isolation: FetchIsolation
    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    replica_id: int = -1
    replica_epoch: int = -1
    """The broker epoch of a follower, -1 if the request has none."""
    rack: str = ""
    """The consumer's rack, "" if the request has none."""
    listener: Listener | None = None
    """The listener that received the request."""


class PartitionRead(NamedTuple):
    """A partition's result, and the values that a delayed fetch compares later."""

    answer: PartitionData
    """`NOTHING_NEW` if an incremental response can leave the partition out."""
    size_bytes: int
    place: LogOffsetMetadata | None
    """The segment and file position of the fetch offset; None after an error."""
    log: PartitionLog | None


class FetchReader:
    """Reads partitions for all fetches of a node. Use only on the event loop's thread."""

    def __init__(self, manager: LogManager, leadership: Leadership) -> None:
        self._manager = manager
        self._leadership = leadership
        self._mapped: dict[LogFile, None] = {}

    def unknown(self, wanted: FetchedPartition) -> PartitionRead | None:
        """Return the error result for an unknown partition, or None if the partition is known."""
        key = wanted.key
        if key is None:
            return _nothing(wanted, ErrorCode.UNKNOWN_TOPIC_ID, is_read=False)
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if key not in self._manager.logs and self._leadership.reading_refusal(key) is unknown:
            return _nothing(wanted, unknown, is_read=False)
        return None

    def idle(self, wanted: FetchedPartition, params: FetchParams) -> PartitionRead | None:
        """Return an empty result if a partition of a session has nothing new, or None if the partition must be read. In most
        requests, nearly all partitions of a session have nothing new.
        """
        log = self._manager.logs.get(wanted.key)  # type: ignore[arg-type]
        if log is None:
            return None
        marks = log.watermarks
        if params.is_follower:
            return self._idle_follower(wanted, params, log)
        if (
            wanted.fetch_offset == wanted.last_high_watermark == marks.high_watermark
            and wanted.last_log_start_offset == marks.log_start_offset
            and wanted.last_fetched_epoch < 0
            and params.isolation is FetchIsolation.HIGH_WATERMARK
            and not self.refusal(wanted, params, log)
        ):
            return PartitionRead(NOTHING_NEW, 0, marks.fetch_high_watermark_metadata(), log)
        return None

    def _idle_follower(self, wanted: FetchedPartition, params: FetchParams, log: PartitionLog) -> PartitionRead | None:
        marks, latest = log.watermarks, log.leader_epochs.latest
        end = log.log_end_offset_metadata
        if (
            wanted.fetch_offset == end.message_offset
            and wanted.last_high_watermark == marks.high_watermark
            and wanted.last_log_start_offset == marks.log_start_offset
            and latest is not None
            # No newer epoch was written after the follower's last one, so the logs do not diverge.
            and (wanted.last_fetched_epoch == latest.epoch or latest.start_offset == end.message_offset)
            and wanted.last_fetched_epoch in (latest.epoch, log.leader_epochs.previous_epoch)
            and not self.refusal(wanted, params, log)
        ):
            return PartitionRead(NOTHING_NEW, 0, end, log)
        return None

    def read(self, wanted: FetchedPartition, params: FetchParams, max_bytes: int, min_one_message: bool) -> PartitionRead:
        """Read up to `max_bytes` of a partition. Errors become part of the result: only NotCachedError is raised, and only inside
        `non_blocking`.
        """
        key = wanted.key
        assert key is not None
        log = self._manager.logs.get(key)
        try:
            if log is None:
                return _nothing(wanted, self._leadership.reading_refusal(key))
            refusal = self.refusal(wanted, params, log)
            if refusal:
                return _nothing(wanted, refusal)
            if params.rack and params.listener is not None:
                other = self._leadership.preferred_replica(key, params.rack, wanted.fetch_offset, params.listener)
                if other is not None:
                    return _read_elsewhere(wanted, log, other)
            return self._read(wanted, params, log, min(max_bytes, wanted.max_bytes), min_one_message)
        except NotCachedError:
            raise
        except InvalidArgumentError:
            return _nothing(wanted, ErrorCode.UNKNOWN_SERVER_ERROR)  # The request is invalid, for example a negative size.
        except TidelogError as error:
            code = error_code_of(error)
            if code is ErrorCode.UNKNOWN_SERVER_ERROR:
                logger.error("%s: a fetch at offset %d failed: %s", "-".join(map(str, key)), wanted.fetch_offset, error)
            return _nothing(wanted, code)
        except Exception:
            logger.exception("%s: a fetch at offset %d failed", "-".join(map(str, key)), wanted.fetch_offset)
            return _nothing(wanted, ErrorCode.UNKNOWN_SERVER_ERROR)

    def refusal(self, wanted: FetchedPartition, params: FetchParams, log: PartitionLog) -> int:
        """Return the error code if the client may not read the partition here, 0 if it may."""
        topic_id = wanted.topic_id
        if topic_id is not NO_ID and log.topic_id is not None and log.topic_id != topic_id and topic_id != NO_ID:
            return ErrorCode.INCONSISTENT_TOPIC_ID
        epoch = wanted.leader_epoch
        if epoch < 0:
            epoch = NO_EPOCH
        if params.is_follower:
            return self._leadership.follower_refusal(log.topic_partition, epoch, params.replica_id, params.replica_epoch)
        if params.version < _FIRST_FROM_FOLLOWERS:
            return self._leadership.refusal(log.topic_partition, epoch)
        return self._leadership.reading_refusal(log.topic_partition, epoch)

    def _read(
        self, wanted: FetchedPartition, params: FetchParams, log: PartitionLog, max_bytes: int, min_one_message: bool
    ) -> PartitionRead:
        watermarks = log.watermarks
        high_watermark, start = watermarks.high_watermark, watermarks.log_start_offset
        answer = PartitionData(wanted.name[1], _NO_ERROR, high_watermark, watermarks.last_stable_offset, start)
        answer.aborted_transactions = None
        answer.records = b""
        if wanted.last_fetched_epoch >= 0:
            parted = self._where_it_parts(log, wanted)
            if parted is not None:
                answer.diverging_epoch = parted
                return PartitionRead(answer, 0, LogOffsetMetadata(wanted.fetch_offset), log)
        found = log.locate(wanted.fetch_offset, max_bytes, params.isolation, min_one_message)
        if found.first_entry_incomplete and params.version > 2:
            return PartitionRead(answer, 0, found.metadata, log)
        if found.aborted_transactions is not None:
            answer.aborted_transactions = [
                AbortedTransaction(txn.producer_id, txn.first_offset) for txn in found.aborted_transactions
            ]
        length, file = found.length, found.log
        if length == 0 or file is None or (params.is_follower and self._leadership.is_held_back(log, params.replica_id)):
            return PartitionRead(answer, 0, found.metadata, log)
        if params.version > 3 and length >= MIN_MAPPED_BYTES:
            answer.records = file.view(found.position, length)
            self._keep_mapped(file)
        else:
            answer.records = file.read(found.position, length)
        return PartitionRead(answer, length, found.metadata, log)

    def _where_it_parts(self, log: PartitionLog, wanted: FetchedPartition) -> EpochEndOffset | None:
        """Return the epoch and end offset at which a follower's log diverges from this one, or None if it does not diverge.
        Raises OffsetOutOfRangeError if this cannot be determined.
        """
        end = self._leadership.end_offset_for_epoch(log, wanted.last_fetched_epoch)
        if end is None or wanted.fetch_offset < log.log_start_offset:
            raise OffsetOutOfRangeError(
                "the offset is below the log start, or its epoch is unknown", path=log.directory, found=wanted.fetch_offset
            )
        epoch, end_offset = end
        if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:
            return EpochEndOffset(epoch, end_offset)
        return None

    def _keep_mapped(self, file: LogFile) -> None:
        mapped = self._mapped
        mapped.pop(file, None)
        mapped[file] = None
        if len(mapped) > MAX_MAPPED_FILES:
            oldest = next(iter(mapped))
            del mapped[oldest]
            oldest.unmap()


def error_answer(wanted: FetchedPartition, code: int) -> PartitionData:
    """Return a partition's result that has only an error code."""
    answer = PartitionData(wanted.name[1], code, -1)
    answer.records = b""
    return answer


def _read_elsewhere(wanted: FetchedPartition, log: PartitionLog, broker_id: int) -> PartitionRead:
    """Return a partition's result that has no records and directs the consumer to another replica."""
    answer = PartitionData(wanted.name[1], _NO_ERROR, log.high_watermark, log.watermarks.last_stable_offset, log.log_start_offset)
    answer.aborted_transactions = None
    answer.records = b""
    answer.preferred_read_replica = broker_id
    return PartitionRead(answer, 0, None, log)


def _nothing(wanted: FetchedPartition, code: int, *, is_read: bool = True) -> PartitionRead:
    answer = error_answer(wanted, code)
    if is_read:
        answer.aborted_transactions = None
    return PartitionRead(answer, 0, None, None)


def by_topic(
    answered: list[tuple[FetchedPartition, PartitionRead]],
) -> Generator[None, None, list[FetchableTopicResponse]]:
    """Group consecutive partitions of the same topic. The order is unchanged, so a topic may occur more than once."""
    topics: list[FetchableTopicResponse] = []
    last: object = None
    for count, (wanted, read) in enumerate(answered):
        if count % 256 == 255:
            yield None
        label = wanted.name[0]
        if label != last:
            last = label
            topics.append(FetchableTopicResponse(label if isinstance(label, str) else "", wanted.topic_id, [read.answer]))
        else:
            topics[-1].partitions.append(read.answer)
    return topics
