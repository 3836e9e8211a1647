"""AlterConfigs (key 33), versions 0 to 2: gives a resource these properties instead of those that it has (KIP-133).

| version | change |
|---|---|
| 1 | nothing that concerns a broker without quotas |
| 2 | flexible |

Superseded by IncrementalAlterConfigs. Each resource stands for itself. See `config_changes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.api import Api, Request
from tidelog.broker.config_changes import Change, Operation, Resource, change, repeated
from tidelog.broker.refusals import Refused, refusal_of
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse

if TYPE_CHECKING:
    from tidelog.broker.node import Node


def handle(node: Node, message: AlterConfigsRequest, request: Request) -> AlterConfigsResponse:
    resources = [
        Resource(
            one.resource_type, one.resource_name, [Change(config.name, Operation.SET, config.value) for config in one.configs]
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
            change(node, resource, incremental=False, validate_only=message.validate_only)
        except Exception as error:
            refusal = refusal_of(error)
            code, reason = refusal.code, refusal.reason
        responses.append(
            AlterConfigsResourceResponse(
                error_code=code, error_message=reason, resource_type=resource.resource_type, resource_name=resource.name
            )
        )
    return AlterConfigsResponse(responses=responses)


API = Api(AlterConfigsRequest, AlterConfigsResponse, 0, 2, handle)
