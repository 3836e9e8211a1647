"""DeleteTopics (key 20), versions 0 to 6.

| version | change |
|---|---|
| 1 | throttle time |
| 3 | TOPIC_DELETION_DISABLED with delete.topic.enable=false; INVALID_REQUEST before |
| 4 | flexible |
| 5 | an error says why |
| 6 | a topic may be named by its id (KIP-516) |

A topic that is named twice, by name or by id or once by each, is not deleted. One without a configuration is deleted as any.
"""

from __future__ import annotations

import uuid
from collections import Counter
from typing import TYPE_CHECKING

from tidelog.broker.api import Api, Request
from tidelog.broker.refusals import refusal_of
from tidelog.broker.topics import NO_TOPIC_ID, TopicView
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState

if TYPE_CHECKING:
    from tidelog.broker.node import Node


def handle(node: Node, message: DeleteTopicsRequest, request: Request) -> DeleteTopicsResponse:
    wanted = [*message.topics, *(DeleteTopicState(name=name) for name in message.topic_names)]
    if not node.config.delete_topic_enable:
        code = ErrorCode.INVALID_REQUEST if request.api_version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
        return DeleteTopicsResponse(responses=[_response(one.name, one.topic_id, code, None) for one in wanted])
    responses: list[DeletableTopicResult] = []

    def refuse(name: str | None, topic_id: uuid.UUID, code: ErrorCode, reason: str | None = None) -> None:
        responses.append(_response(name, topic_id, code, reason))

    names: Counter[str] = Counter()
    ids: Counter[uuid.UUID] = Counter()
    for one in wanted:
        if one.name is None and one.topic_id == NO_TOPIC_ID:
            refuse(None, NO_TOPIC_ID, ErrorCode.INVALID_REQUEST, "a topic without name and id")
        elif one.name is None:
            ids[one.topic_id] += 1
        elif one.topic_id == NO_TOPIC_ID:
            names[one.name] += 1
        else:
            refuse(one.name, one.topic_id, ErrorCode.INVALID_REQUEST, "a topic is named by its name or by its id, not by both")
    going: dict[str, TopicView] = {}
    for topic_id, count in ids.items():
        view = node.topics.by_id(topic_id)
        if count > 1:
            refuse(None, topic_id, ErrorCode.INVALID_REQUEST, "named more than once")
        elif view is None:
            refuse(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic of that id")
        else:
            going[view.name] = view
    for name, count in names.items():
        view = node.topics.get(name)
        if count > 1:
            refuse(name, NO_TOPIC_ID, ErrorCode.INVALID_REQUEST, "named more than once")
        elif view is None:
            refuse(name, NO_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        elif view.topic_id in ids:
            going.pop(name, None)
            refuse(name, view.topic_id, ErrorCode.INVALID_REQUEST, "named by its id as well")
        else:
            going[name] = view
    responses += [_delete(node, view) for view in going.values()]
    return DeleteTopicsResponse(responses=responses)


def _delete(node: Node, view: TopicView) -> DeletableTopicResult:
    try:
        node.topics.delete(view)
    except Exception as error:
        refusal = refusal_of(error)
        return _response(view.name, view.topic_id, refusal.code, refusal.reason)
    return _response(view.name, view.topic_id, ErrorCode.NONE, None)


def _response(name: str | None, topic_id: uuid.UUID, code: ErrorCode, reason: str | None) -> DeletableTopicResult:
    return DeletableTopicResult(name=name, topic_id=topic_id, error_code=code, error_message=reason)


API = Api(DeleteTopicsRequest, DeleteTopicsResponse, 0, 6, handle)
