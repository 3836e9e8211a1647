"""DeleteTopics (20): deletes topics by name or by id, unless delete.topic.enable=false.

A topic that the request names twice, whether by name or by id, is not deleted. A topic without a configuration can be deleted.
"""

from __future__ import annotations

import uuid
from collections import Counter
from itertools import chain

from tidelog.broker.handling.access import Access, Amend, Asker, appending, why
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.quotas.client_quotas import Mutations
from tidelog.broker.requests.api_error import api_error_of, shortened
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work, slowly
from tidelog.broker.requests.wide_requests import discarded
from tidelog.broker.topics.topic_changes import Job
from tidelog.broker.topics.topics import NO_TOPIC_ID, TopicView
from tidelog.security.acl import Operation, ResourceType
from tidelog.storage.steps import Steps
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

AT_ONCE = 256

FIRST_STRICT = 5
"""From this version on clients understand THROTTLING_QUOTA_EXCEEDED (KIP-599)."""


def _gate(asker: Asker, message: DeleteTopicsRequest) -> DeleteTopicsResponse | Amend | None:
    if not asker.node.config.delete_topic_enable or asker.may_cluster(Operation.DELETE, log_denied=False):
        return None
    topics = asker.node.topics
    times = Counter(message.topic_names)
    times.update(one.name for one in message.topics if one.name is not None)
    ids = Counter(one.topic_id for one in message.topics if one.name is None)
    answers: list[DeletableTopicResult] = []

    def is_left(name: str | None, topic_id: uuid.UUID) -> bool:
        """Return True if the handler must decide about the topic. Otherwise add an authorization error, and return False."""
        if (name is None) == (topic_id == NO_TOPIC_ID) or (times[name] if name is not None else ids[topic_id]) > 1:
            return True
        view = None if name is not None else topics.by_id(topic_id)
        if name is None and view is None:
            return True
        known = name if view is None else view.name
        assert known is not None
        can_see = asker.may(Operation.DESCRIBE, ResourceType.TOPIC, known)
        may = asker.may(Operation.DELETE, ResourceType.TOPIC, known)
        if may and (can_see or view is not None):
            return True
        if may or not can_see or view is not None or topics.get(known) is not None:
            # An id must not reveal the name of a topic that the client may not describe.
            shown = known if can_see or view is None else None
            code = asker.code(ResourceType.TOPIC)
            answers.append(_response(shown, topic_id, code, why(code)))
            return False
        return True

    message.topics = [one for one in message.topics if is_left(one.name, one.topic_id)]
    message.topic_names = [name for name in message.topic_names if is_left(name, NO_TOPIC_ID)]
    if not answers:
        return None
    if not message.topics and not message.topic_names:
        return DeleteTopicsResponse(responses=answers)
    return appending("responses", answers)


ACCESS = Access("DELETE on CLUSTER, or on each TOPIC; DESCRIBE to see its name", _gate)


def handle(node: Node, message: DeleteTopicsRequest, request: Request) -> Work:
    wanted = yield from slowly(chain(message.topics, (DeleteTopicState(name=name) for name in message.topic_names)), AT_ONCE)
    if not node.config.delete_topic_enable:
        code = ErrorCode.INVALID_REQUEST if request.api_version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
        refused = yield from slowly((_response(one.name, one.topic_id, code, None) for one in wanted), AT_ONCE)
        return DeleteTopicsResponse(responses=refused)
    responses: list[DeletableTopicResult] = []

    def refuse(name: str | None, topic_id: uuid.UUID, code: ErrorCode, reason: str | None = None) -> None:
        responses.append(_response(name, topic_id, code, reason))

    names: Counter[str] = Counter()
    ids: Counter[uuid.UUID] = Counter()
    for number, one in enumerate(wanted):
        if number % AT_ONCE == AT_ONCE - 1:
            yield None
        if one.name is None and one.topic_id == NO_TOPIC_ID:
            refuse(None, NO_TOPIC_ID, ErrorCode.INVALID_REQUEST, "the request gives neither the topic's name nor its id")
        elif one.name is None:
            ids[one.topic_id] += 1
        elif one.topic_id == NO_TOPIC_ID:
            names[one.name] += 1
        else:
            refuse(one.name, one.topic_id, ErrorCode.INVALID_REQUEST, "a topic must be named by its name or its id, not by both")
    going: dict[str, TopicView] = {}
    for number, (topic_id, count) in enumerate(ids.items()):
        if number % AT_ONCE == 0:
            yield None
        view = node.topics.by_id(topic_id)
        if count > 1:
            refuse(None, topic_id, ErrorCode.INVALID_REQUEST, "the request names the topic more than once")
        elif view is None:
            refuse(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
        else:
            going[view.name] = view
    for number, (name, count) in enumerate(names.items()):
        if number % AT_ONCE == 0:
            yield None
        view = node.topics.get(name)
        if count > 1:
            refuse(name, NO_TOPIC_ID, ErrorCode.INVALID_REQUEST, "the request names the topic more than once")
        elif view is None:
            refuse(name, NO_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, shortened(f"there is no topic {name!r}"))
        elif view.topic_id in ids:
            going.pop(name, None)
            refuse(name, view.topic_id, ErrorCode.INVALID_REQUEST, "the request names the topic both by its name and by its id")
        else:
            going[name] = view
    mutations = node.quotas.mutations(request, is_strict=request.api_version >= FIRST_STRICT)
    responses += yield from node.topic_changes.side_by_side(
        Job(name, _delete(node, view, mutations, is_by_id=view.topic_id in ids)) for name, view in going.items()
    )
    yield from discarded(None, wanted, names, ids)
    return DeleteTopicsResponse(throttle_time_ms=mutations.throttle_ms, responses=responses)


def _delete(node: Node, view: TopicView, mutations: Mutations, *, is_by_id: bool) -> Steps[DeletableTopicResult]:
    now = node.topics.get(view.name)
    if now is None or (is_by_id and now.topic_id != view.topic_id):  # Another request has deleted the topic in the meantime.
        if is_by_id:
            return _response(None, view.topic_id, ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
        return _response(view.name, NO_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {view.name!r}")
    view = now
    try:
        mutations.record(len(view.partitions))
        yield from node.topics.deletion(view)
    except Exception as error:
        refusal = api_error_of(error)
        return _response(view.name, view.topic_id, refusal.code, refusal.reason)
    return _response(view.name, view.topic_id, ErrorCode.NONE, None)


def _response(name: str | None, topic_id: uuid.UUID, code: ErrorCode, reason: str | None) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=reason)


API = Api(DeleteTopicsRequest, DeleteTopicsResponse, Versions(0, 6), ACCESS, handle)
