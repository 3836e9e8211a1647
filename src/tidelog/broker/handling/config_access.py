"""Access checks of the configuration APIs: a topic's configuration requires authorization for the topic, any other for the
cluster.

The handler refuses unknown types of resources.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidelog.broker.handling.access import Access, Amend, Asker, appending, why
from tidelog.security.acl import CLUSTER_NAME, Operation, ResourceType
from tidelog.wire.codec import Message

TOPIC = 2
_OF_CLUSTER = (4, 8, 16, 32)
"""Resource types that require authorization for the cluster: brokers, their loggers, client metrics subscriptions, groups."""


def of_configs(operation: Operation, *, refused: Callable[..., Any], response: Callable[..., Message], into: str) -> Access:
    """Return an `Access` that checks each of the request's `resources`. `refused` makes the result of a refused resource,
    which is added to the response's array `into`.
    """

    def gate(asker: Asker, message: Any) -> Message | Amend | None:
        answers, left = [], []
        for one in message.resources:
            kind = ResourceType.TOPIC if one.resource_type == TOPIC else ResourceType.CLUSTER
            name = one.resource_name if kind is ResourceType.TOPIC else CLUSTER_NAME
            if one.resource_type not in (TOPIC, *_OF_CLUSTER) or asker.may(operation, kind, name):
                left.append(one)
            else:
                code = asker.code(kind)
                answers.append(
                    refused(
                        error_code=code,
                        error_message=why(code),
                        resource_type=one.resource_type,
                        resource_name=one.resource_name,
                    )
                )
        if not answers:
            return None
        if not left:
            return response(**{into: answers})
        message.resources = left
        return appending(into, answers)

    return Access(f"{operation.name} on each TOPIC, on CLUSTER for all else", gate)
