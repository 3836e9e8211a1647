"""Produce responses with acks=all, which are sent once the records of each partition are committed (Kafka's DelayedProduce).

| a partition | its error code |
|---|---|
| is committed up to its last record | none |
| … but fewer replicas are in sync than `min.insync.replicas` | NOT_ENOUGH_REPLICAS_AFTER_APPEND |
| is meanwhile led by another broker, or deleted | NOT_LEADER_OR_FOLLOWER, UNKNOWN_TOPIC_OR_PARTITION |
| has waited for the request's `timeout_ms` | REQUEST_TIMED_OUT |
| had a disk error | KAFKA_STORAGE_ERROR |

As in Kafka, the result of a failed partition keeps its base offset (except after a disk error), because the records are in the
log and may be committed later. Use only on the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple, Protocol

from tidelog.broker.partitions.leadership import Leadership
from tidelog.broker.requests.listeners import Listener
from tidelog.broker.requests.request import Outcome, Request
from tidelog.model import TopicPartition
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.produce import LeaderIdAndEpoch, NodeEndpoint, PartitionProduceResponse, ProduceResponse

FIRST_WITH_LEADERS = 10
"""Since this version, a NOT_LEADER_OR_FOLLOWER result names the leader (KIP-951)."""


class LeaderNames(Protocol):
    """The part of a broker that names the leaders of partitions, with their addresses."""

    leadership: Leadership

    def endpoint_of(self, broker_id: int, listener: Listener) -> tuple[str, int, str | None] | None:
        """Return a broker's host, port and rack for clients of a listener; None if unknown."""


class Uncommitted(NamedTuple):
    """A partition's result that waits until its records are committed. They end at `end_offset` in `log`."""

    answer: PartitionProduceResponse
    log: PartitionLog
    end_offset: int


class DelayedProduce:
    """One delayed Produce response."""

    def __init__(self, broker: LeaderNames, request: Request, response: ProduceResponse) -> None:
        self._broker = broker
        self._request = request
        self._response = response
        self._left = 1

    def wait_for(self, uncommitted: Iterable[Uncommitted], timeout_ms: int) -> ProduceResponse | Outcome:
        """Return the response if no partition has to wait. Otherwise return LATER, and send the response when the last partition
        is done.
        """
        when_committed = self._broker.leadership.when_committed
        for one in uncommitted:
            self._left += 1
            if when_committed(one.log, one.end_offset, timeout_ms, partial(self._done, one.answer)):
                self._left -= 1
        self._left -= 1
        if self._left:
            return Outcome.LATER
        self._name_leaders()
        return self._response

    def _done(self, answer: PartitionProduceResponse, code: ErrorCode) -> None:
        if code:
            answer.error_code = code
            if code is ErrorCode.KAFKA_STORAGE_ERROR:
                answer.base_offset = answer.log_append_time_ms = answer.log_start_offset = -1
        self._left -= 1
        if not self._left:
            self._name_leaders()
            self._request.respond(self._response)

    def _name_leaders(self) -> None:
        if self._request.api_version >= FIRST_WITH_LEADERS:
            name_leaders(self._broker, self._request, self._response)


def name_leaders(broker: LeaderNames, request: Request, response: ProduceResponse) -> None:
    """Add the current leader and its address to results with NOT_LEADER_OR_FOLLOWER."""
    leaders = set()
    for topic in response.responses:
        for answer in topic.partition_responses:
            if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leader, epoch = broker.leadership.leader_of(TopicPartition(topic.name, answer.index))
                answer.current_leader = LeaderIdAndEpoch(leader, epoch)
                leaders.add(leader)
    for leader in sorted(leaders):
        found = broker.endpoint_of(leader, request.listener)
        if found is not None:
            response.node_endpoints.append(NodeEndpoint(leader, *found))
