"""Fetch (1): returns records, at once or as soon as enough are available.

Older versions get records in older message formats: see `down_conversion`. Tiered storage is not supported. `fetch` decides when
a fetch is answered; `fetch_reader` reads one partition.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator

from tidelog.broker.fetch.fetch import Fetch
from tidelog.broker.fetch.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_ID,
    NO_SESSION,
    TOPIC_ID_VERSION,
    FetchedPartition,
    FetchSession,
    PartitionName,
)
from tidelog.broker.handling.access import Access
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Outcome, Request
from tidelog.broker.requests.slices import Elsewhere, Work
from tidelog.broker.requests.wide_requests import AT_ONCE, FEW, discarded
from tidelog.model import TopicPartition
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

POSITION_PARTS = 32
"""The number of dictionaries among which the names of a request with many partitions are divided."""

ACCESS = Access("READ on each TOPIC; from a follower CLUSTER_ACTION on CLUSTER")


def handle(node: Node, message: FetchRequest, request: Request) -> FetchResponse | Outcome:
    """Return a response with records, or LATER if the fetch must wait for them."""
    answer = node.slices.answer(request, _work(node, message, request))
    assert isinstance(answer, FetchResponse | Outcome)
    return answer


def _work(node: Node, message: FetchRequest, request: Request) -> Work:
    version = request.api_version
    if not 0 <= message.isolation_level <= 1:
        return _refused(message, version)
    epoch = message.session_epoch
    session = None
    if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
        if message.session_id != NO_SESSION:
            node.fetch_sessions.remove(message.session_id)
        wanted = yield from _named(node, message, version)
    else:
        found = node.fetch_sessions.get(message.session_id, epoch, uses_topic_ids=version >= TOPIC_ID_VERSION)
        if isinstance(found, ErrorCode):
            return FetchResponse(error_code=found)
        session = found
        # Advance the epoch first: a second request that arrives while the session is being changed must be out of order.
        node.fetch_sessions.touch(session)
        if len(session.partitions) > FEW:
            yield None  # A small request can cause a lot of work, so it waits for its turn if many requests arrive together.
        yield from _update(node, session, message, version)
        if session.partitions:
            node.fetch_sessions.count(session)
            wanted = list(session.partitions.values())
        else:
            # The session has no partitions left, so it ends.
            node.fetch_sessions.remove(session.id)
            session = None
            epoch = FINAL_EPOCH
            wanted = yield from _named(node, message, version)
    return (yield from Fetch(node, message, request, wanted, session, epoch).work())


def _named(node: Node, message: FetchRequest, version: int) -> Generator[Elsewhere | None, None, list[FetchedPartition]]:
    """Return the partitions that a full (not incremental) request names."""
    wanted = yield from _partitions(node, message.topics, version)
    if len(wanted) > AT_ONCE:
        yield from discarded(message)
    return wanted


def _refused(message: FetchRequest, version: int) -> FetchResponse:
    """Return the response to a request with an unknown isolation level."""
    code = ErrorCode.UNKNOWN_SERVER_ERROR
    response = FetchResponse(error_code=code, session_id=message.session_id)
    if version < TOPIC_ID_VERSION:
        response.responses = [
            FetchableTopicResponse(
                topic.topic, partitions=[PartitionData(one.partition, code, high_watermark=-1) for one in topic.partitions]
            )
            for topic in message.topics
        ]
    return response


def _partitions(node: Node, topics: list[FetchTopic], version: int) -> Generator[Elsewhere | None, None, list[FetchedPartition]]:
    """Return the requested partitions in order. If the request names a partition twice, the last entry is used, at the
    position of the first.
    """
    wanted: list[FetchedPartition] = []
    is_wide = len(topics) > AT_ONCE or sum(len(topic.partitions) for topic in topics) > AT_ONCE
    # A dictionary of half a million entries blocks the event loop for 15 ms whenever it grows. Many small ones do not.
    positions: list[dict[PartitionName, int]] = [{} for _ in range(POSITION_PARTS if is_wide else 1)]
    by_id = version >= TOPIC_ID_VERSION
    logs = node.manager.logs
    count = 0
    for topic in topics:
        topic_name, topic_id, label = _topic(node, topic, by_id)
        for partition in topic.partitions:
            index = partition.partition
            key = None
            if topic_name is not None:
                log = logs.get((topic_name, index))  # type: ignore[call-overload]
                # Sessions share the key objects: there may be a thousand sessions with a thousand keys each.
                key = TopicPartition(topic_name, index) if log is None else log.topic_partition
            name = label, index
            one = FetchedPartition(name, key, topic_id, partition)
            position = positions[hash(name) % len(positions)].setdefault(name, len(wanted))
            if position == len(wanted):
                wanted.append(one)
            else:
                wanted[position] = one
            count += 1
            if not count % 128:
                yield None
    yield from discarded(None, *positions)
    return wanted


def _topic(node: Node, topic: FetchTopic | ForgottenTopic, by_id: bool) -> tuple[str | None, uuid.UUID, str | uuid.UUID]:
    """Return a topic's name (None if unknown), its id (`NO_ID` if the request has none), and the one of the two that
    identifies topics in the request's version.
    """
    if not by_id:
        return topic.topic, NO_ID, topic.topic
    view = node.topics.by_id(topic.topic_id)
    return None if view is None else view.name, topic.topic_id, topic.topic_id


def _update(node: Node, session: FetchSession, message: FetchRequest, version: int) -> Generator[Elsewhere | None, None, None]:
    """Change a session's partitions according to an incremental request."""
    partitions = session.partitions
    named = yield from _partitions(node, message.topics, version)
    for count, wanted in enumerate(named):
        if count % 256 == 255:
            yield None
        known = partitions.get(wanted.name)
        if known is None:
            partitions[wanted.name] = wanted
        else:
            known.take_over(wanted)
    yield from discarded(None, named)
    by_id = version >= TOPIC_ID_VERSION
    for number, topic in enumerate(message.forgotten_topics_data):
        if number % 64 == 63:
            yield None
        _, _, label = _topic(node, topic, by_id)
        for count, index in enumerate(topic.partitions):
            partitions.pop((label, index), None)
            if count % 256 == 255:
                yield None
    if by_id:
        for count, partition in enumerate(list(partitions.values())):
            if count % 256 == 255:
                yield None
            if partition.key is None:
                view = node.topics.by_id(partition.topic_id)
                if view is not None:
                    partition.key = TopicPartition(view.name, partition.name[1])


API = Api(FetchRequest, FetchResponse, Versions(0, 18), ACCESS, handle)
