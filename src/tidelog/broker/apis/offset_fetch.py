"""OffsetFetch (9): returns the committed offsets of groups.

Version 0, which in Kafka reads offsets from ZooKeeper, gets UNSUPPORTED_VERSION.

A partition that is unknown or has no committed offset gets offset -1 and no error. The client need not be a member of the group.
A topic for which the request lists no partitions is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping
from typing import Any, Final, TypeAlias

from tidelog.broker.coordinators.groups.group import Group
from tidelog.broker.coordinators.groups.offset_commits import check_epoch
from tidelog.broker.handling.access import Access, Amend, Asker, allows, refusals
from tidelog.broker.handling.api import Api
from tidelog.broker.handling.coordinator_handlers import by_groups, usual_by_groups
from tidelog.broker.node import Node
from tidelog.broker.quotas.answer_room import AnswerRoom, no_room
from tidelog.broker.requests.request import Outcome, Request
from tidelog.broker.requests.slices import Work, slowly
from tidelog.groups.group_offsets import CommittedOffset
from tidelog.groups.offsets_topic import MAX_CACHED
from tidelog.model import NO_LEADER_EPOCH, TopicPartition
from tidelog.security.acl import Operation, ResourceType
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import ZERO_UUID, Versions
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

NO_OFFSET: Final = CommittedOffset(-1, NO_LEADER_EPOCH, "", -1)

OFFSET_BYTES: Final = 100
"""The memory that an offset takes in a response, without its metadata, in bytes."""

_FIRST_WITH_GROUP_ERROR: Final = 2
_FIRST_WITH_GROUPS: Final = 8

_FIRST = (OffsetFetchResponseTopic, OffsetFetchResponsePartition)
_LATER = (OffsetFetchResponseTopics, OffsetFetchResponsePartitions)
"""The message classes of the two response formats: for one group, and for several (version 8 and later)."""

_Wanted: TypeAlias = "list[tuple[str, Iterable[int]]] | None"
"""The requested partitions, by topic; None if all of the group's offsets are requested."""


def _gate(asker: Asker, message: OffsetFetchRequest) -> OffsetFetchResponse | Amend | None:
    failed = asker.code(ResourceType.GROUP)
    version = asker.request.api_version
    if version < _FIRST_WITH_GROUPS:
        if asker.may(Operation.DESCRIBE, ResourceType.GROUP, message.group_id):
            asked_whole = [message.group_id] if message.topics is None else []
            message.topics, refused = _seen(asker, message.topics, _FIRST)
            return _amending(asker, {message.group_id: refused}, asked_whole, of=message.group_id)
        return OffsetFetchResponse(error_code=failed)
    groups: list[OffsetFetchResponseGroup] = []
    left = []
    of_group: dict[str, list[Any]] = {}
    whole: set[str] = set()
    for one in message.groups:
        if asker.may(Operation.DESCRIBE, ResourceType.GROUP, one.group_id):
            if one.topics is None:
                whole.add(one.group_id)
            one.topics, refused = _seen(asker, one.topics, _LATER)
            of_group[one.group_id] = refused
            left.append(one)
        else:
            groups.append(OffsetFetchResponseGroup(one.group_id, [], failed))
    if not left:
        return OffsetFetchResponse(groups=groups)
    message.groups = left
    return _amending(asker, of_group, whole, groups)


def _amending(
    asker: Asker,
    refused: Mapping[str, list[Any]],
    whole: Collection[str],
    groups: Iterable[OffsetFetchResponseGroup] = (),
    *,
    of: str = "",
) -> Amend:
    """Return a function that amends a response: for each group it removes topics that the client may not describe, and adds the
    errors for refused topics.

    `whole` has the groups for which the client requests all topics; the topics of other groups have already been checked.
    `refused` has the errors by group id, and `groups` are added to the response. `of` is the group's id if the request is for one
    group.
    """

    def amended(group_id: str, topics: Iterable[Any]) -> list[Any]:
        logs = group_id in whole
        seen = [
            one
            for one in topics
            if asker.may(Operation.DESCRIBE, ResourceType.TOPIC, one.name, log_denied=logs, log_allowed=logs)
        ]
        return [*seen, *refused.get(group_id, ())]

    def amend(response: Any) -> OffsetFetchResponse | Outcome:
        if isinstance(response, OffsetFetchResponse):
            if not response.error_code:
                response.topics = amended(of, response.topics)
            for one in response.groups:
                if not one.error_code:
                    one.topics = amended(one.group_id, one.topics)
            response.groups.extend(groups)
        return response  # type: ignore[no-any-return]

    return amend


def _seen(asker: Asker, topics: Any, form: tuple[Any, Any]) -> tuple[Any, list[Any]]:
    """Return the requested topics that the client may describe, and the error responses for the others. `form` has the classes of
    these responses, for a topic and for a partition. If `topics` is None (all topics), return None and no errors.
    """
    if topics is None:
        return None, []
    denied = refusals(asker, Operation.DESCRIBE, ResourceType.TOPIC, Counter(one.name for one in topics))
    if not denied:
        return topics, []
    refused = [one for one in topics if one.name in denied]
    return [one for one in topics if one.name not in denied], _all_refused(refused, asker.code(ResourceType.TOPIC), form)


def _all_refused(topics: Iterable[Any], code: ErrorCode, form: tuple[Any, Any]) -> list[Any]:
    of_topic, of_partition = form
    none = NO_OFFSET
    return [
        of_topic(
            name=topic.name,
            partitions=[
                of_partition(one, none.offset, none.leader_epoch, none.metadata, code) for one in topic.partition_indexes
            ],
        )
        for topic in topics
    ]


ACCESS = Access(
    "DESCRIBE on each GROUP, and on each TOPIC: a request for all topics omits those without it",
    _gate,
)


def handle(node: Node, message: OffsetFetchRequest, request: Request) -> Work:
    version, is_stable = request.api_version, message.require_stable
    if version >= _FIRST_WITH_GROUPS:
        groups = []
        room = AnswerRoom()
        for one in message.groups:
            code, group = (no_room().code, None) if room.is_used_up else _group(node, one.group_id)
            if group is not None and group.consumer is not None and (one.member_id is not None or one.member_epoch >= 0):
                code = check_epoch(group.consumer, one.member_id or "", one.member_epoch)
            found = [] if code else (yield from _found(group, _wanted(one.topics), is_stable, code, _LATER))
            groups.append(OffsetFetchResponseGroup(one.group_id, found, code))
            if len(message.groups) > 1:  # A response for one group repeats nothing, so its size needs no limit.
                for count, topic in enumerate(found):
                    room.use(len(topic.name) + sum(len(each.metadata) + OFFSET_BYTES for each in topic.partitions))
                    if count % 64 == 63:
                        yield None
            if len(groups) % 16 == 0 or len(one.group_id) > MAX_CACHED:  # Hashing a long id takes half a millisecond.
                yield None
        return OffsetFetchResponse(groups=groups)
    code, group = _group(node, message.group_id) if version else (ErrorCode.UNSUPPORTED_VERSION, None)
    topics = []
    if not code or version < _FIRST_WITH_GROUP_ERROR:
        topics = yield from _found(group, _wanted(message.topics), is_stable, code, _FIRST)
    return OffsetFetchResponse(error_code=code, topics=topics)


def answer_usual(node: Node, request: Request, row: list[Any]) -> list[Any] | None:
    """Answer an authorized request for named partitions of one group. Return None for any other."""
    group_id, topics, groups, is_stable = row
    version = request.api_version
    if version >= _FIRST_WITH_GROUPS:
        if len(groups) != 1:
            return None
        group_id, member_id, member_epoch, topics = groups[0]
        if member_id is not None or member_epoch >= 0:
            return None
    if not version or topics is None or node.groups.code_for(group_id):
        return None
    group = node.groups.get(group_id)
    if is_stable and group is not None and group.offsets.has_pending:
        return None
    answered = []
    for topic in topics:
        name, partitions = topic[0], topic[-1]
        if len(set(partitions)) != len(partitions):
            return None
        of_topic = []
        for partition in partitions:
            one = NO_OFFSET if group is None else group.offsets.get(name, partition) or NO_OFFSET
            of_topic.append([partition, one.offset, one.leader_epoch, one.metadata, 0])
        if of_topic:
            answered.append([name, of_topic] if version < _FIRST_WITH_GROUPS else [name, ZERO_UUID, of_topic])
    names = [topic[0] for topic in topics]
    if len(set(names)) != len(names):
        return None
    if node.permissions is not None and not allows(
        node, request, (Operation.DESCRIBE, ResourceType.GROUP, (group_id,)), (Operation.DESCRIBE, ResourceType.TOPIC, names)
    ):
        return None
    return [0, answered, 0, []] if version < _FIRST_WITH_GROUPS else [0, [], 0, [[group_id, answered, 0]]]


def _wanted(topics: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics] | None) -> _Wanted:
    return None if topics is None else [(topic.name, topic.partition_indexes) for topic in topics]


def _group(node: Node, group_id: str) -> tuple[ErrorCode, Group | None]:
    code = node.groups.code_for(group_id)
    return code, None if code else node.groups.get(group_id)


def _found(
    group: Group | None, wanted: _Wanted, require_stable: bool, code: ErrorCode, form: tuple[Any, Any]
) -> Generator[None, None, list[Any]]:
    """Return a group's committed offsets by topic, as structs of the two classes in `form`: a topic's and a partition's. If the
    group is unknown, a request for all topics (`wanted` is None) gets no topics; a named partition gets `NO_OFFSET` and `code`.
    """
    of_topic, of_partition = form
    if wanted is None:
        wanted = [] if group is None else [(topic, list(inner)) for topic, inner in group.offsets.by_topic().items()]
    must_be_stable = require_stable and group is not None and group.offsets.has_pending
    topics: dict[str, dict[int, Any]] = {}
    for number, (topic, partitions) in enumerate(wanted):
        if number % 64 == 63:
            yield None
        found = topics.setdefault(topic, {})
        for count, partition in enumerate(partitions):
            one, its_code = NO_OFFSET, code
            if must_be_stable and group is not None and group.offsets.is_pending(TopicPartition(topic, partition)):
                its_code = ErrorCode.UNSTABLE_OFFSET_COMMIT
            elif group is not None:
                one = group.offsets.get(topic, partition) or NO_OFFSET
            found[partition] = of_partition(partition, one.offset, one.leader_epoch, one.metadata, its_code)
            if count % 128 == 127:
                yield None
    answers = (of_topic(name=topic, partitions=list(found.values())) for topic, found in topics.items() if found)
    return (yield from slowly(answers, 64))


API = Api(OffsetFetchRequest, OffsetFetchResponse, Versions(0, 9), ACCESS, by_groups(handle), usual_by_groups(answer_usual))
