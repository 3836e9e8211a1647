"""One fetch request in progress: read, wait, read again, convert, respond.

A fetch is answered at once if `min_bytes` are available, if `max_wait_ms` is 0, or in these cases:

| case | |
|---|---|
| no partition of the fetch exists and may be read | one such partition is enough to wait |
| a partition has an error, a diverging epoch, or a preferred replica | |

Otherwise the fetch waits (`delayed_fetches`) until `min_bytes` are available. It does not wait, or stops waiting, if a fetch
offset is above the log end or in an older segment than the log end. The same applies if a log is removed or may no longer be
read. After `max_wait_ms` the response has the records that exist. After a wait all partitions are read again.

No other connection has to wait: another thread reads bytes that are not in memory and converts large numbers of records. Many
partitions are read in slices (see `slices`). `apis.fetch` creates one `Fetch` per request. Everything else runs on the
event loop's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from time import perf_counter_ns
from typing import TYPE_CHECKING

from tidelog.broker.fetch.converted_answers import as_known, converted
from tidelog.broker.fetch.delayed_fetches import Watch
from tidelog.broker.fetch.fetch_access import failing, readable
from tidelog.broker.fetch.fetch_quota import size_of, throttled
from tidelog.broker.fetch.fetch_reader import NOTHING_NEW, FetchParams, PartitionRead, by_topic
from tidelog.broker.fetch.fetch_sessions import (
    INITIAL_EPOCH,
    NO_SESSION,
    TOPIC_ID_VERSION,
    FetchedPartition,
    FetchSession,
    next_epoch,
)
from tidelog.broker.requests.request import Outcome, Request
from tidelog.broker.requests.slices import Work, extended, picked, slowly
from tidelog.broker.requests.wide_requests import AT_ONCE, FEW, discarded
from tidelog.errors import TidelogError
from tidelog.formats.non_blocking_read import NotCachedError, non_blocking
from tidelog.model import ISOLATION_LEVELS, READ_COMMITTED, TopicPartition
from tidelog.storage.partition.watermarks import FetchIsolation
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.fetch import (
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
)

if TYPE_CHECKING:
    from tidelog.broker.fetch.fetching_broker import FetchingBroker
    from tidelog.broker.loop.timers import Timer

logger = logging.getLogger("tidelog.broker")

_FUTURE_REPLICA = -3
_FIRST_WITHOUT_FORMATS = 4
_FIRST_WITH_STORAGE_ERROR = 6
_FIRST_WITH_ZSTD = 10
_FIRST_WITH_REPLICA_EPOCH = 15
_FIRST_WITH_LEADERS = 16

_STALE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class Fetch:
    """One fetch request from its first read to its response. `session_epoch` is the epoch in the request; `session` is the
    session that it continues.
    """

    __slots__ = (
        "_available",
        "_broker",
        "_held_bytes",
        "_is_final",
        "_is_gone",
        "_is_hard_limit",
        "_left_bytes",
        "_message",
        "_min_one_message",
        "_params",
        "_partitions",
        "_reads",
        "_request",
        "_session",
        "_session_epoch",
        "_set_apart",
        "_since_ns",
        "_timer",
        "_unknown",
        "_waiting_bytes",
        "_watch",
    )

    def __init__(
        self,
        broker: FetchingBroker,
        message: FetchRequest,
        request: Request,
        wanted: list[FetchedPartition],
        session: FetchSession | None,
        session_epoch: int,
    ) -> None:
        self._broker = broker
        self._message = message
        version = request.api_version
        replica_id = message.replica_id if version < _FIRST_WITH_REPLICA_EPOCH else message.replica_state.replica_id
        if replica_id >= 0 or replica_id == _FUTURE_REPLICA:
            isolation = FetchIsolation.LOG_END
        elif message.isolation_level == ISOLATION_LEVELS[READ_COMMITTED]:
            isolation = FetchIsolation.TXN_COMMITTED
        else:
            isolation = FetchIsolation.HIGH_WATERMARK
        max_bytes = min(message.max_bytes, broker.config.fetch_max_bytes)
        if broker.quotas.is_active and replica_id < 0:
            max_bytes = int(min(max_bytes, broker.quotas.most_fetched(request)))
        min_bytes = min(message.min_bytes, max_bytes)
        replica_epoch = -1 if version < _FIRST_WITH_REPLICA_EPOCH else message.replica_state.replica_epoch
        self._params = FetchParams(
            version,
            replica_id >= 0,
            isolation,
            min_bytes,
            max_bytes,
            message.max_wait_ms,
            replica_id,
            replica_epoch,
            "" if replica_id >= 0 else message.rack_id,
            request.listener,
        )
        self._request = request
        self._session = session
        self._session_epoch = session_epoch
        self._unknown: list[tuple[FetchedPartition, PartitionRead]] = []
        self._partitions = wanted
        self._set_apart: list[FetchedPartition] = []
        self._held_bytes = 0
        self._is_final = False
        self._is_gone = False
        self._timer: Timer | None = None
        self._watch: Watch | None = None
        self._available: dict[TopicPartition, tuple[int, int]] = {}
        self._waiting_bytes = 0
        self._since_ns = request.started_ns
        self._begin()

    def work(self) -> Work:
        """Return the response, or LATER if the fetch must wait."""
        if self._broker.permissions is not None:
            wanted = self._partitions
            self._partitions, denied = yield from readable(self._broker.permissions, self._request, wanted, self._params)
            if denied:
                self._set_apart = wanted
                self._unknown += denied
        faults = self._broker.faults.of("Fetch")
        if faults:
            wanted = self._partitions
            self._partitions, failed = failing(faults, wanted)
            if failed is None:
                return Outcome.CLOSE
            if failed:
                self._set_apart = self._set_apart or wanted
                self._unknown += failed
        logs = self._broker.manager.logs
        for count, one in enumerate(self._partitions):
            if one.key not in logs:
                yield from self._set_apart_unknown()
                break
            if count % 256 == 255:
                yield None
        return (yield from self._going_on())

    def _set_apart_unknown(self) -> Generator[None, None, None]:
        wanted, known = self._partitions, list[FetchedPartition]()
        self._set_apart = self._set_apart or wanted
        ids: list[tuple[FetchedPartition, PartitionRead]] = []
        named: list[tuple[FetchedPartition, PartitionRead]] = []
        for count, one in enumerate(wanted):
            unknown = self._broker.fetch_reader.unknown(one)
            if unknown is None:
                known.append(one)
            else:
                # For consumers, unknown ids come first, as in Kafka.
                (named if one.key is not None or self._params.is_follower else ids).append((one, unknown))
            if count % 64 == 63:
                yield None
        self._partitions = known
        yield from extended(ids, self._unknown)
        yield from extended(ids, named)
        self._unknown = ids

    # --- reading

    def _begin(self) -> None:
        self._give_back()
        self._reads: list[PartitionRead] = []
        self._left_bytes = self._params.max_bytes
        self._min_one_message = self._params.version > 2

    def _going_on(self) -> Work:
        """Read all partitions. Return the response, or LATER if the fetch must wait for records."""
        is_over = True
        try:
            if len(self._partitions) > FEW:
                yield None  # Thousands of fetches may be woken together.
            yield from self._read()
            if not self._is_final and not self._is_enough() and self._waits():
                is_over = False
                return Outcome.LATER
            self._is_final = True
            return (yield from self._finish())
        finally:
            if is_over:
                self._give_back()

    def _give_back(self) -> None:
        """Stop counting the bytes that were read, because the connection counts them now or they were dropped."""
        self._broker.unsent.add(-self._held_bytes)
        self._held_bytes = 0

    def _read(self) -> Generator[NotCachedError | None, None, None]:
        read_partition = self._broker.fetch_reader.read
        params, reads, unsent = self._params, self._reads, self._broker.unsent
        idle = self._broker.fetch_reader.idle if self._session is not None else None
        turns = 0
        for wanted in self._partitions:
            turns += 1
            if idle is not None:
                nothing = idle(wanted, params)
                if nothing is not None:
                    reads.append(nothing)
                    if params.is_follower:
                        self._note_follower(wanted, nothing)
                    if not turns % 256:
                        yield None
                    continue
            read = None
            while read is None:
                try:
                    room_bytes = self._left_bytes
                    if params.version > 2 or self._held_bytes:  # Before version 3 the first batch may be incomplete.
                        room_bytes = min(room_bytes, unsent.room_bytes)
                    read = read_partition(wanted, params, room_bytes, self._min_one_message)
                except NotCachedError as missing:
                    yield missing
            reads.append(read)
            if params.is_follower:
                self._note_follower(wanted, read)
            if not turns % 8:
                yield None
            size = read.size_bytes
            if size:
                self._min_one_message = False
                self._left_bytes = max(0, self._left_bytes - size)
                if isinstance(read.answer.records, bytes):
                    self._held_bytes += size
                    unsent.add(size)

    def _note_follower(self, wanted: FetchedPartition, read: PartitionRead) -> None:
        """Note a follower's position as given in its request. Do this only at the first read, because the log may have grown by
        the second.
        """
        log, place = read.log, read.place
        if not self._is_final and log is not None and place is not None and read.answer.diverging_epoch.end_offset < 0:
            params = self._params
            self._broker.leadership.follower_fetched(log, params.replica_id, params.replica_epoch, place, wanted.log_start_offset)

    def _is_enough(self) -> bool:
        params, reads = self._params, self._reads
        if params.max_wait_ms <= 0 or not reads:
            return True
        size = 0
        for read in reads:
            answer = read.answer
            if answer.error_code or answer.diverging_epoch.end_offset >= 0 or answer.preferred_read_replica >= 0:
                return True
            size += read.size_bytes
        return size >= params.min_bytes

    # --- waiting

    def _waits(self) -> bool:
        """Start waiting for records and return True. Return False if the fetch need not wait: `min_bytes` are available now (a
        limit may have stopped the read), or a partition has later segments.
        """
        available = self._available
        for index, (wanted, read) in enumerate(zip(self._partitions, self._reads, strict=True)):
            key = wanted.key
            assert key is not None
            size = read.size_bytes
            if size or read.answer.high_watermark > wanted.fetch_offset:
                now = self._available_bytes(key, index)
                if now is None:
                    return False
                size = now
            available[key] = (index, size)
            self._waiting_bytes += size
        if self._waiting_bytes >= self._params.min_bytes:
            return False
        self._since_ns -= perf_counter_ns()  # The wait itself takes no time on the loop.
        self._watch = self._broker.delayed_fetches.watch(available, self._on_append, self._on_time)
        self._timer = self._broker.timers.call_later(self._params.max_wait_ms, self._on_time)
        self._request.when_gone(self._on_gone)
        return True

    def _on_append(self, key: TopicPartition) -> None:
        index, before = self._available[key]
        now = self._available_bytes(key, index)
        if now is not None:
            self._available[key] = (index, now)
            self._waiting_bytes += now - before
            if self._waiting_bytes < self._params.min_bytes:
                return
        self._on_time()

    def _available_bytes(self, key: TopicPartition, index: int) -> int | None:
        """Return how many bytes of a partition the fetch could read now, or None if the fetch must stop waiting."""
        read = self._reads[index]
        log, place = read.log, read.place
        if log is None or place is None or self._broker.manager.logs.get(key) is not log:
            return None
        if self._broker.fetch_reader.refusal(self._partitions[index], self._params, log):
            return None
        try:
            with non_blocking():
                end = log.watermarks.end_of(self._params.isolation)
        except (NotCachedError, TidelogError):
            return None
        if place.message_offset == end.message_offset:
            return 0
        if self._params.is_follower and self._broker.leadership.is_held_back(log, self._params.replica_id):
            return 0
        if place.message_offset > end.message_offset or place.on_older_segment(end):
            return None
        if place.segment_base_offset != end.segment_base_offset or end.is_message_offset_only:
            return 0
        return min(end.relative_position - place.relative_position, self._partitions[index].max_bytes)

    def _on_time(self) -> None:
        """Stop waiting, and answer with the records that exist now."""
        self._stop_waiting()
        self._since_ns += perf_counter_ns()
        self._is_final = True
        if not self._is_gone:
            self._broker.slices.go_on(self._request, self._again())

    def _again(self) -> Work:
        if len(self._partitions) > FEW:
            yield None  # This takes a separate turn, because it also frees the objects of the last read.
        self._begin()
        return (yield from self._going_on())

    def _stop_waiting(self) -> None:
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_gone(self) -> None:
        self._is_gone = True
        self._stop_waiting()
        self._give_back()
        if len(self._partitions) > FEW:
            self._broker.slices.soon(self._forget)

    def _forget(self) -> None:
        """Release the objects of the last read. If many clients leave together, `slices` calls this for a few at a time."""
        self._partitions, self._reads, self._available = [], [], {}

    # --- answering

    def _finish(self) -> Work:
        """Return the response for what was read."""
        version = self._params.version
        answered = yield from picked(zip(self._partitions, self._reads, strict=True), _has_news)
        yield from extended(answered, self._unknown)
        looked_at = answered
        if self._broker.quotas.is_active and not self._params.is_follower:
            busy_ns = perf_counter_ns() - self._since_ns
            size = yield from size_of(answered)
            refusal = throttled(self._broker.quotas, self._request, size, busy_ns, self._session, self._session_epoch)
            if refusal is not None:
                return refusal
        leaders: set[int] = set()
        for count, (wanted, read) in enumerate(answered):
            if count % 256 == 255:
                yield None
            answer = read.answer
            if answer.error_code:
                if version < _FIRST_WITH_STORAGE_ERROR and answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR:
                    answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                elif version >= _FIRST_WITH_LEADERS and answer.error_code in _STALE and wanted.key is not None:
                    answer.current_leader = LeaderIdAndEpoch(*self._broker.leadership.leader_of(wanted.key))
                    leaders.add(answer.current_leader.leader_id)
            elif read.size_bytes and wanted.key is not None:
                self._broker.metrics.fetched(wanted.key.topic, read.size_bytes)
                if self._params.is_follower and read.log is not None:
                    self._broker.leadership.sent_to_follower(read.log, read.size_bytes)
        session_id = 0
        session = self._session
        if session is not None:
            session_id = session.id
            if session.epoch != next_epoch(self._session_epoch):
                return FetchResponse(error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH, session_id=session_id)
            answered = yield from picked(answered, _is_news)
            for wanted, read in answered:
                if read.size_bytes and session.partitions.pop(wanted.name, None) is not None:
                    session.partitions[wanted.name] = wanted
        elif self._session_epoch == INITIAL_EPOCH:
            partitions = {}
            for count, (wanted, read) in enumerate(answered):
                wanted.answered(read.answer)
                partitions[wanted.name] = wanted
                if count % 256 == 255:
                    yield None
            session_id = self._broker.fetch_sessions.create(
                partitions, is_privileged=self._params.is_follower, uses_topic_ids=version >= TOPIC_ID_VERSION
            )
            if session_id == NO_SESSION:
                yield from discarded(None, partitions)
        if version < _FIRST_WITH_ZSTD:
            known = ((wanted, as_known(self._broker, version, wanted, read)) for wanted, read in answered)
            answered = yield from slowly(known, 256)
            if version < _FIRST_WITHOUT_FORMATS:
                return (yield from converted(self._broker, version, answered))
        topics = yield from by_topic(answered)
        if len(answered) > AT_ONCE or len(self._partitions) > AT_ONCE:
            yield from discarded(
                self._message, looked_at, answered, self._partitions, self._reads, self._unknown, self._set_apart
            )
        yield from discarded(None, *self._broker.fetch_sessions.take_removed())
        return FetchResponse(0, 0, session_id, topics, self._endpoints(leaders) if leaders else [])

    def _endpoints(self, leaders: set[int]) -> list[NodeEndpoint]:
        found = ((leader, self._broker.endpoint_of(leader, self._request.listener)) for leader in sorted(leaders))
        return [NodeEndpoint(leader, *endpoint) for leader, endpoint in found if endpoint is not None]


def _has_news(one: tuple[FetchedPartition, PartitionRead]) -> bool:
    return one[1].answer is not NOTHING_NEW


def _is_news(one: tuple[FetchedPartition, PartitionRead]) -> bool:
    return one[0].is_news(one[1].answer, one[1].size_bytes)
