"""Applies a leader's responses to the partitions that follow it: truncates logs or restarts them, appends records, delays or
fails partitions.

Each function is a generator with one step per partition or appended piece. Other work runs between two steps and may add or
remove partitions, so each partition is checked again before it is changed. An error affects only its partition:

| error | action |
|---|---|
| the log's disk fails | the partition fails: it is offline |
| too many open files | retried after the backoff |
| bytes that are not a batch, have a wrong checksum, or are out of order | not appended; retried after the backoff |
| a batch begins before the log's end | the log is truncated there; if those records are committed, the partition fails |
| the epoch ends before records that the leader itself has sent | nothing is truncated at first; retried after the backoff |
| impossible offsets: negative, or an end before the start | nothing is truncated; retried after the backoff |
| any other | the partition fails; the error is logged with its traceback |

Use only on the event loop's thread.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Generator, Iterable, Iterator

from tidelog.broker.loop.retry_log import RetryLog
from tidelog.broker.replicas.following.fetch_session_client import WantedFetch
from tidelog.broker.replicas.following.followed_partition import FollowedPartition, FollowerState
from tidelog.broker.replicas.following.followed_partitions import FollowedPartitions
from tidelog.broker.replicas.following.follower_append import append_fetched, is_part_of_a_batch
from tidelog.broker.replicas.following.leader_ends import Ends, EpochEnd
from tidelog.broker.replicas.following.truncation_rules import (
    UNDEFINED,
    Truncation,
    out_of_range,
    start_of_batch,
    truncation_by_epoch,
)
from tidelog.broker.replicas.replication_quota import ReplicationQuota
from tidelog.errors import CorruptDataError, InvalidOffsetError, StorageError, UnexpectedAppendOffsetError
from tidelog.model import TopicPartition
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.fetch import PartitionData

logger = logging.getLogger("tidelog.broker")

LOUD_RETRIES = 3
"""An error is logged only after more retries than this."""


class LeaderAnswers:
    """Applies the responses of one leader. `moved` is called when a log has gained or lost readable records. `now_s` returns
    the loop's time in seconds.
    """

    def __init__(
        self,
        leader_id: int,
        followed: FollowedPartitions,
        quota: ReplicationQuota,
        retry_log: RetryLog,
        moved: Callable[[TopicPartition], None],
        now_s: Callable[[], float],
    ) -> None:
        self.appended_bytes = 0
        """Bytes of records appended so far."""
        self._leader_id = leader_id
        self._followed = followed
        self._quota = quota
        self._log = retry_log
        self._moved = moved
        self._now_s = now_s

    # --- before a fetch

    def begin(
        self,
        partitions: Iterable[FollowedPartition],
        *,
        fetch_tells: bool,
        knows_epochs: bool,
        asking: list[tuple[FollowedPartition, int]],
    ) -> Iterator[None]:
        """Let new partitions fetch if fetch responses will show where logs diverge (`fetch_tells`), if the leader cannot report
        that, or if the log has no epochs. Add all other partitions to `asking`, with their last epochs.
        """
        for one in partitions:
            if one.state is FollowerState.TRUNCATING:
                with self._guarded(one):
                    latest = one.log.leader_epochs.latest
                    if latest is not None and not fetch_tells and knows_epochs:
                        asking.append((one, latest.epoch))
                        continue
                    if latest is None or not fetch_tells:
                        yield from self._cut(one, Truncation(one.log.high_watermark, True), "no leader epochs are known")
                    if one.state is FollowerState.TRUNCATING:
                        self._followed.fetch(one)
            yield

    def truncate(self, asked: Iterable[tuple[FollowedPartition, int]], ends: dict[TopicPartition, EpochEnd]) -> Iterator[None]:
        """Truncate logs to match the leader's epoch end offsets."""
        for one, _ in asked:
            if one.state is FollowerState.TRUNCATING:
                error_code, epoch, end_offset = ends[one.key]
                with self._guarded(one):
                    if error_code:
                        self._refused(one, error_code, "OffsetForLeaderEpoch")
                    elif self._is_nonsense(one, end_offset < UNDEFINED, f"an end of epoch {epoch} at {end_offset}"):
                        pass
                    elif (yield from self._cut_by_epoch(one, epoch, end_offset)) and one.state is FollowerState.TRUNCATING:
                        self._followed.fetch(one)
            yield

    def find_range(self, partitions: Iterable[FollowedPartition], ends: dict[TopicPartition, Ends]) -> Iterator[None]:
        """Let partitions whose fetch offset was out of range continue within the range of the leader's log."""
        for one in partitions:
            if one.state is FollowerState.OUT_OF_RANGE:
                error_code, start, end = ends[one.key]
                with self._guarded(one):
                    if error_code:
                        self._refused(one, error_code, "ListOffsets")
                    elif not self._is_nonsense(one, not 0 <= start <= end, f"a log from {start} to {end}"):
                        yield from self._go_to(one, start, end)
                        if one.state is FollowerState.OUT_OF_RANGE:
                            self._followed.fetch(one)
            yield

    def _go_to(self, one: FollowedPartition, leader_start: int, leader_end: int) -> Iterator[None]:
        log, own_end = one.log, one.log.log_end_offset
        action = out_of_range(own_end, leader_start, leader_end)
        why = f"the leader has the offsets {leader_start} to {leader_end}"
        if action.truncate_to is not None:
            yield from self._cut(one, Truncation(action.truncate_to, True), why)
        elif action.start_over_at is not None:
            logger.warning("%s: the log ends at %d, but %s: restarting at the leader's log start", log.directory, own_end, why)
            log.truncate_fully_and_start_at(action.start_over_at)
            self._moved(one.key)
        elif log.leader_epochs.latest is not None and log.leader_epochs.latest.epoch > one.leader_epoch:
            yield from self._forget_future(one, log.leader_epochs.latest.epoch)
        else:
            self._log.failed("%s: the fetch offset %d is out of range, although %s", log.directory, own_end, why)
            self._followed.delay(one, self._now_s())

    def _forget_future(self, one: FollowedPartition, epoch: int) -> Iterator[None]:
        """Remove epochs that are above the leader's epoch. The leader does not know where they end, so the two logs are only
        known to agree up to the high watermark.

        Such an epoch comes from a damaged checkpoint or batch, or from a different cluster. Kafka would repeat its request
        forever.
        """
        why = f"the log has leader epoch {epoch}, but the leader's epoch is {one.leader_epoch}"
        self._log.error("%s: %s: removing the newer epochs and truncating the log to its high watermark", one.log.directory, why)
        yield from self._cut(one, Truncation(one.log.high_watermark, True), why)
        if one.state is FollowerState.OUT_OF_RANGE:
            with one.log.writing("store a leader epoch"):
                one.log.leader_epochs.drop_above(one.leader_epoch)

    # --- after a fetch

    def take(
        self, answers: Iterable[tuple[TopicPartition, PartitionData]], told: Callable[[TopicPartition], WantedFetch | None]
    ) -> Iterator[None]:
        """Apply a fetch response's partitions. `told` returns the parameters that were requested for a partition."""
        for key, data in answers:
            one, asked = self._followed.by_key.get(key), told(key)
            if one is not None and asked is not None and one.is_answer_to(asked):
                self._followed.touch(one)
                with self._guarded(one):
                    yield from self._take(one, data)
            yield

    def _take(self, one: FollowedPartition, data: PartitionData) -> Iterator[None]:
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._followed.look_for_range(one)
            return
        if data.error_code:
            self._refused(one, data.error_code, "Fetch")
            return
        log, parted = one.log, data.diverging_epoch
        if parted.epoch >= 0:
            if self._is_nonsense(one, parted.end_offset < UNDEFINED, f"an end of epoch {parted.epoch} at {parted.end_offset}"):
                return
            if one.has_appended and not one.is_contradicted:
                self._contradicted(one, parted.epoch, parted.end_offset)
                return
            yield from self._cut_by_epoch(one, parted.epoch, parted.end_offset)
            return
        end, high_watermark = log.log_end_offset, log.high_watermark
        try:
            for _ in append_fetched(log, data, one.leader_epoch):
                yield
                if one.state is not FollowerState.FETCHING:
                    return  # The partition was dropped meanwhile: ignore later batches.
        except UnexpectedAppendOffsetError as error:
            yield from self._overlapped(one, error)
            return
        if data.records and log.log_end_offset == end:
            # The response has only part of a batch, or its epoch is newer than the one that is followed.
            if is_part_of_a_batch(data.records):
                self._log.failed(
                    "%s: broker %d has a batch larger than replica.fetch.max.bytes: set it to message.max.bytes or more",
                    *(log.directory, self._leader_id),
                )
            self._followed.delay(one, self._now_s())
            return
        size_bytes = len(data.records or b"")
        one.has_appended |= log.log_end_offset > end
        self.appended_bytes += size_bytes
        one.succeeded(data.high_watermark)
        if size_bytes and self._followed.is_throttled(one):
            self._quota.record(size_bytes, self._now_s())
        if log.high_watermark != high_watermark:
            self._moved(one.key)

    # --- actions

    def _cut_by_epoch(self, one: FollowedPartition, epoch: int, end_offset: int) -> Generator[None, None, bool]:
        cut = truncation_by_epoch(one.log, epoch, end_offset)
        yield from self._cut(one, cut, f"the leader's epoch {epoch} ends at {end_offset}")
        return cut.is_complete

    def _cut(self, one: FollowedPartition, truncation: Truncation, why: str) -> Iterator[None]:
        """Truncate a log between batches. If that changes nothing, the partition's next fetch waits for the backoff, because the
        leader would only repeat its response.

        The producer state after the truncation is computed first, in steps. The truncation itself is one step; it is skipped if
        the log has changed.
        """
        log, state, end = one.log, one.state, one.log.log_end_offset
        offset = start_of_batch(log, truncation.offset)
        known = yield from log.producers_at(offset)
        if one.state is not state or log.log_end_offset != end:
            return
        before = log.log_end_offset, log.leader_epochs.latest
        if offset < log.high_watermark:
            logger.error("%s: truncated to %d, below its high watermark %d: %s", log.directory, offset, log.high_watermark, why)
        elif offset < log.log_end_offset:
            logger.info("%s: truncated to %d: %s", log.directory, offset, why)
        log.truncate_to(offset, known)
        one.has_appended = one.is_contradicted = False
        if (log.log_end_offset, log.leader_epochs.latest) != before:
            self._moved(one.key)
        elif one.state is FollowerState.FETCHING:
            self._followed.delay(one, self._now_s())

    def _contradicted(self, one: FollowedPartition, epoch: int, end_offset: int) -> None:
        """Handle a leader whose epoch ends before records that it has sent: do not truncate yet; fetch again after the backoff.

        The leader's epochs are wrong, or the leader has lost records in the middle of its epoch. If it repeats the response, the
        log is truncated, as in Kafka. If the leader never recovers, the follower truncates the same records and fetches them
        again, once per backoff.
        """
        one.is_contradicted = True
        self._log.error(
            "%s: broker %d reports that its epoch %d ends at %d, but it has sent records up to %d: asking again",
            *(one.log.directory, self._leader_id, epoch, end_offset, one.log.log_end_offset - 1),
        )
        self._followed.delay(one, self._now_s())

    def _is_nonsense(self, one: FollowedPartition, is_nonsense: bool, what: str) -> bool:
        """Return whether a response has impossible offsets, described by `what`. If so, the leader is asked again later."""
        if is_nonsense:
            self._log.failed("%s: broker %d has sent impossible offsets: %s", one.log.directory, self._leader_id, what)
            self._followed.delay(one, self._now_s())
        return is_nonsense

    def _refused(self, one: FollowedPartition, error_code: int, what: str) -> None:
        if error_code == ErrorCode.FENCED_LEADER_EPOCH:
            # Normal at each change of leaders: this broker's metadata is briefly out of date.
            self._followed.fail(one, f"broker {self._leader_id} has a newer epoch than {one.leader_epoch}", level=logging.INFO)
            return
        self._followed.delay(one, self._now_s(), error_code)
        if one.retries > LOUD_RETRIES:
            self._log.failed("%s: broker %d answered %s with error %d", one.log.directory, self._leader_id, what, error_code)

    @contextlib.contextmanager
    def _guarded(self, one: FollowedPartition) -> Iterator[None]:
        """Handle an error of one partition, so that the error does not affect other partitions."""
        log = one.log
        try:
            yield
        except StorageError as error:
            if log.is_offline or log.local.is_closed:
                self._followed.fail(one, str(error))
            else:
                self._log.failed("%s: %s", log.directory, error)
                self._followed.delay(one, self._now_s())
        except (CorruptDataError, InvalidOffsetError) as error:
            self._log.failed("%s: broker %d sent records that cannot be appended: %s", log.directory, self._leader_id, error)
            self._followed.delay(one, self._now_s())
        except Exception as error:
            logger.exception("%s: following broker %d failed", log.directory, self._leader_id)
            self._followed.fail(one, repr(error))

    def _overlapped(self, one: FollowedPartition, error: UnexpectedAppendOffsetError) -> Iterator[None]:
        """Handle a batch that begins before the log's end: the log was truncated within a batch of the leader."""
        first_offset = error.first_offset
        if first_offset < one.log.high_watermark:
            self._followed.fail(one, f"broker {self._leader_id} contradicts committed records: {error}")
        else:
            yield from self._cut(one, Truncation(first_offset, True), f"a batch of the leader begins at {first_offset}")
