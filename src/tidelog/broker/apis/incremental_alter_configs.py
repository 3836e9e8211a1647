"""IncrementalAlterConfigs (key 44), versions 0 and 1: changes properties one by one (KIP-339).

| version | change |
|---|---|
| 1 | flexible |

Each resource stands for itself; of one resource, all changes are made or none. See `config_changes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.api import Api, Request
from tidelog.broker.config_changes import Change, Resource, change, repeated
from tidelog.broker.refusals import Refused, refusal_of
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from tidelog.broker.node import Node


def handle(node: Node, message: IncrementalAlterConfigsRequest, request: Request) -> IncrementalAlterConfigsResponse:
    resources = [
        Resource(
            one.resource_type,
            one.resource_name,
            [Change(config.name, config.config_operation, config.value) for config in one.configs],
        )
        for one in message.resources
    ]
    twice = repeated(resources)
    responses = []
    for resource in resources:
        code, reason = ErrorCode.NONE, None
        try:
            if (resource.resource_type, resource.name) in twice:
                raise Refused(ErrorCode.INVALID_REQUEST, "a resource stands more than once in the request")
            change(node, resource, incremental=True, validate_only=message.validate_only)
        except Exception as error:
            refusal = refusal_of(error)
            code, reason = refusal.code, refusal.reason
        responses.append(
            AlterConfigsResourceResponse(
                error_code=code, error_message=reason, resource_type=resource.resource_type, resource_name=resource.name
            )
        )
    return IncrementalAlterConfigsResponse(responses=responses)


API = Api(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, 0, 1, handle)
