"""The follower's side of a fetch session: each partition is sent to the leader once, then only changes (KIP-227).

| the last response | session id and epoch of the next request | partitions in it |
|---|---|---|
| none yet, or the session is unknown, or the leader created none | 0, 0 | all: create a session |
| has a session id | id, next epoch | changed and dropped partitions |
| is missing, or has any other error or partitions that were not requested | id, 0 | all: replace the session |

Since version 13, topics are identified by id (KIP-516). If a topic is recreated under the same name, the old id is dropped and
the new id added. If any partition has no topic id, all partitions use names; a session never switches between ids and names.

The cost of a request depends on the number of changes, not on the number of partitions. `broker.fetch.fetch_sessions` is the
leader's side. See Kafka's FetchSessionHandler. Does no I/O.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from tidelog.broker.fetch.fetch_sessions import INITIAL_EPOCH, NO_SESSION, next_epoch
from tidelog.broker.loop.retry_log import RetryLog
from tidelog.model import TopicPartition
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import ZERO_UUID
from tidelog.wire.messages.fetch import FetchPartition, FetchResponse, FetchTopic, ForgottenTopic, PartitionData

logger = logging.getLogger("tidelog.broker")

_Name: TypeAlias = tuple[str | uuid.UUID, int]
"""A partition as requests and responses identify it."""


class WantedFetch(NamedTuple):
    """The fetch parameters of one partition, sent to the leader again only if they change."""

    topic_id: uuid.UUID | None
    fetch_offset: int
    leader_epoch: int
    last_fetched_epoch: int
    """The epoch of the follower's last record; -1 if unknown, so that the leader does not check where the logs diverge."""
    log_start_offset: int


class SessionRequest(NamedTuple):
    """The session fields and partitions of the next request."""

    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    is_empty: bool
    """Whether the request would fetch nothing and drop nothing, in which case it is not sent."""


class FetchSessionClient:
    """The session with one leader. `max_bytes` is the limit per partition."""

    def __init__(self, max_bytes: int, log: RetryLog | None = None, leader: str = "the leader") -> None:
        self._max_bytes = max_bytes
        self._log = log or RetryLog(logger)
        self._leader = leader
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._uses_topic_ids = False
        self._wanted: dict[TopicPartition, WantedFetch] = {}
        self._told: dict[TopicPartition, WantedFetch] = {}
        self._changed: dict[TopicPartition, None] = {}
        self._names: dict[_Name, TopicPartition] = {}
        self._without_id = 0

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self._wanted

    def want(self, key: TopicPartition, wanted: WantedFetch) -> None:
        """Add a partition, or change its parameters. The partition then moves to the end of the request order."""
        before = self._wanted.pop(key, None)
        self._wanted[key] = wanted
        if before != wanted:
            self._changed[key] = None
            self._without_id += (wanted.topic_id is None) - (before is not None and before.topic_id is None)

    def drop(self, key: TopicPartition) -> None:
        """Remove a partition. Idempotent."""
        before = self._wanted.pop(key, None)
        if before is not None:
            self._changed[key] = None
            self._without_id -= before.topic_id is None

    def told(self, key: TopicPartition) -> WantedFetch | None:
        """Return the partition's parameters in the last request, or None if that request did not include the partition."""
        return self._told.get(key)

    def request(self, version: int) -> SessionRequest:
        """Return the next request. Call `answered` or `failed` before the next call."""
        uses_topic_ids = version >= 13 and not self._without_id
        if uses_topic_ids != self._uses_topic_ids and self._epoch != INITIAL_EPOCH:
            self._epoch = INITIAL_EPOCH
        if self._epoch == INITIAL_EPOCH:
            self._uses_topic_ids = uses_topic_ids
            self._told = dict(self._wanted)
            self._changed.clear()
            self._names = {self._name(key, wanted): key for key, wanted in self._told.items()}
            return SessionRequest(self._session_id, INITIAL_EPOCH, self._topics(self._told), [], not self._told)
        named: dict[TopicPartition, WantedFetch] = {}
        forgotten: list[tuple[TopicPartition, WantedFetch]] = []
        for key in self._changed:
            told, wanted = self._told.get(key), self._wanted.get(key)
            if told == wanted:
                continue
            if told is not None and (wanted is None or (uses_topic_ids and wanted.topic_id != told.topic_id)):
                forgotten.append((key, told))
                del self._names[self._name(key, told)]
            if wanted is None:
                del self._told[key]
            else:
                named[key] = self._told[key] = wanted
                self._names[self._name(key, wanted)] = key
        self._changed.clear()
        is_empty = not self._told and not forgotten
        return SessionRequest(self._session_id, self._epoch, self._topics(named), self._forgotten(forgotten), is_empty)

    def answered(self, response: FetchResponse) -> list[tuple[TopicPartition, PartitionData]] | None:
        """Process a response. Return its partitions, or None if the response has an error or only a throttle time."""
        if response.error_code:
            code = response.error_code
            ended = self._session_id, self._epoch, code
            self._log.failed("%s ended fetch session %d in epoch %d with error %d", self._leader, *ended, level=logging.INFO)
            self._begin_again(keep_id=code != ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            return None
        is_full = self._epoch == INITIAL_EPOCH
        if is_full and not response.responses and response.throttle_time_ms > 0:
            self._begin_again(keep_id=False)
            return None
        found: dict[TopicPartition, PartitionData] = {}
        count = 0
        for topic in response.responses:
            name = topic.topic_id if self._uses_topic_ids else topic.topic
            for data in topic.partitions:
                count += 1
                key = self._names.get((name, data.partition_index))
                if key is not None:
                    found[key] = data
        if count != len(found) or (is_full and count != len(self._told)):
            self._log.failed(
                "%s answered a fetch of %d partitions with %d, of which %d were requested: starting a new fetch session",
                self._leader,
                len(self._told),
                count,
                len(found),
            )
            self._begin_again(keep_id=not is_full)
            return None
        self._session_id = response.session_id
        self._epoch = INITIAL_EPOCH if response.session_id == NO_SESSION else next_epoch(self._epoch)
        return list(found.items())

    def failed(self) -> None:
        """Record that the last request got no response, so it is unknown whether the leader processed the request."""
        self._begin_again(keep_id=True)

    # --- inside

    def _begin_again(self, *, keep_id: bool) -> None:
        self._epoch = INITIAL_EPOCH
        if not keep_id:
            self._session_id = NO_SESSION

    def _name(self, key: TopicPartition, wanted: WantedFetch) -> _Name:
        if self._uses_topic_ids and wanted.topic_id is not None:
            return wanted.topic_id, key.partition
        return key.topic, key.partition

    def _topics(self, named: dict[TopicPartition, WantedFetch]) -> list[FetchTopic]:
        """Return the request's topics. Consecutive partitions of a topic share an entry, so a topic may occur more than
        once, and the order is kept.
        """
        topics: list[FetchTopic] = []
        for key, wanted in named.items():
            if not topics or topics[-1].topic != key.topic or topics[-1].topic_id != (wanted.topic_id or ZERO_UUID):
                topics.append(FetchTopic(key.topic, wanted.topic_id or ZERO_UUID))
            topics[-1].partitions.append(
                FetchPartition(
                    key.partition,
                    wanted.leader_epoch,
                    wanted.fetch_offset,
                    wanted.last_fetched_epoch,
                    wanted.log_start_offset,
                    self._max_bytes,
                )
            )
        return topics

    def _forgotten(self, partitions: Iterable[tuple[TopicPartition, WantedFetch]]) -> list[ForgottenTopic]:
        topics: dict[str | uuid.UUID, ForgottenTopic] = {}
        for key, told in partitions:
            name = self._name(key, told)[0]
            if name not in topics:
                topics[name] = ForgottenTopic(key.topic, told.topic_id or ZERO_UUID)
            topics[name].partitions.append(key.partition)
        return list(topics.values())
