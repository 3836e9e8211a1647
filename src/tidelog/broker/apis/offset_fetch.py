"""OffsetFetch (9): what groups have committed.

Version 0 is UNSUPPORTED_VERSION: there is no ZooKeeper.

A partition without an offset, and a missing one, has offset -1 and no error. Every client gets the answer, a member or not. A
topic of which no partitions are wanted is not in the answer.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from tidelog.broker.api import Api
from tidelog.broker.coordinated import by_groups
from tidelog.broker.groups.group import Group
from tidelog.broker.server.request import Request
from tidelog.broker.server.slices import Work, slowly
from tidelog.groups.group_offsets import CommittedOffset
from tidelog.model import NO_LEADER_EPOCH, TopicPartition
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from tidelog.broker.node import Node

SERVED = Versions(0, 9)
"""What each version changed: the table of `tidelog.wire.messages.offset_fetch`."""

NO_OFFSET: Final = CommittedOffset(-1, NO_LEADER_EPOCH, "", -1)

_FIRST_WITH_GROUP_ERROR: Final = 2
_FIRST_WITH_GROUPS: Final = 8

_Wanted: TypeAlias = "list[tuple[str, Iterable[int]]] | None"
"""Partitions by topic, as a request names them; None: all that the group has."""


class _Found(NamedTuple):
    partition: int
    committed: CommittedOffset
    code: ErrorCode


class _Answer(NamedTuple):
    code: ErrorCode
    topics: dict[str, list[_Found]]


def handle(node: Node, message: OffsetFetchRequest, request: Request) -> Work:
    wanted: _Wanted
    if request.api_version >= _FIRST_WITH_GROUPS:
        groups = []
        for one in message.groups:
            wanted = None if one.topics is None else [(topic.name, topic.partition_indexes) for topic in one.topics]
            answer = yield from _look(node, one.group_id, wanted, message.require_stable)
            groups.append((yield from _group(one.group_id, answer)))
            if len(groups) % 16 == 0:
                yield None
        return OffsetFetchResponse(groups=groups)
    wanted = None if message.topics is None else [(topic.name, topic.partition_indexes) for topic in message.topics]
    if request.api_version == 0:
        return (yield from _only((yield from _all(wanted, ErrorCode.UNSUPPORTED_VERSION))))
    answer = yield from _look(node, message.group_id, wanted, message.require_stable)
    if answer.code and request.api_version < _FIRST_WITH_GROUP_ERROR:
        return (yield from _only((yield from _all(wanted, answer.code))))
    return (yield from _only(answer))


def _look(node: Node, group_id: str, wanted: _Wanted, require_stable: bool) -> Generator[None, None, _Answer]:
    """Find what a group has committed of some partitions."""
    code = node.groups.code_for(group_id)
    if code:
        return _Answer(code, {})
    group = node.groups.get(group_id)
    if group is None:
        return (yield from _all(wanted, ErrorCode.NONE))
    if wanted is None:
        wanted = [(topic, list(of_topic)) for topic, of_topic in group.offsets.by_topic().items()]
    must_be_stable = require_stable and group.offsets.has_pending
    topics: dict[str, list[_Found]] = {}
    for number, (topic, partitions) in enumerate(wanted):
        if number % 64 == 63:
            yield None
        found = {}
        for partition in partitions:
            found[partition] = _find(group, topic, partition, must_be_stable)
            if len(found) % 128 == 127:
                yield None
        if found:
            topics.setdefault(topic, []).extend(found.values())
    return _Answer(ErrorCode.NONE, topics)


def _find(group: Group, topic: str, partition: int, must_be_stable: bool) -> _Found:
    if must_be_stable and group.offsets.is_pending(TopicPartition(topic, partition)):
        return _Found(partition, NO_OFFSET, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    return _Found(partition, group.offsets.get(topic, partition) or NO_OFFSET, ErrorCode.NONE)


def _all(wanted: _Wanted, code: ErrorCode) -> Generator[None, None, _Answer]:
    """Answer that no partition has an offset, each with the same code."""
    topics: dict[str, list[_Found]] = {}
    for number, (topic, partitions) in enumerate(wanted or ()):
        if number % 64 == 63:
            yield None
        if partitions:
            answers = (_Found(partition, NO_OFFSET, code) for partition in dict.fromkeys(partitions))
            topics.setdefault(topic, []).extend((yield from slowly(answers, 256)))
    return _Answer(code, topics)


# --- both forms of an answer


def _only(answer: _Answer) -> Generator[None, None, OffsetFetchResponse]:
    topics = []
    for name, found in answer.topics.items():
        fetched = (
            OffsetFetchResponsePartition(partition, one.offset, one.leader_epoch, one.metadata, code)
            for partition, one, code in found
        )
        topics.append(OffsetFetchResponseTopic(name, (yield from slowly(fetched, 128))))
        if len(topics) % 64 == 0:
            yield None
    return OffsetFetchResponse(error_code=answer.code, topics=topics)


def _group(group_id: str, answer: _Answer) -> Generator[None, None, OffsetFetchResponseGroup]:
    topics = []
    for name, found in answer.topics.items():
        fetched = (
            OffsetFetchResponsePartitions(partition, one.offset, one.leader_epoch, one.metadata, code)
            for partition, one, code in found
        )
        topics.append(OffsetFetchResponseTopics(name=name, partitions=(yield from slowly(fetched, 128))))
        if len(topics) % 64 == 0:
            yield None
    return OffsetFetchResponseGroup(group_id, topics, answer.code)


API = Api(OffsetFetchRequest, OffsetFetchResponse, SERVED, by_groups(handle))
