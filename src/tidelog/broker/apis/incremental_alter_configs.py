"""IncrementalAlterConfigs (44): changes properties one by one (KIP-339).

Each resource succeeds or fails on its own. Either all changes of a resource are made, or none. See `config_changes`.
"""

from __future__ import annotations

from tidelog.broker.configs.config_changes import Change, Resource
from tidelog.broker.configs.config_forwarding import altered
from tidelog.broker.handling.access import of_configs
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Outcome, Request
from tidelog.broker.requests.slices import Work, slowly
from tidelog.broker.requests.wide_requests import discarded
from tidelog.security.acl import Operation
from tidelog.wire.fields import Versions
from tidelog.wire.messages.alter_configs import AlterConfigsResourceResponse
from tidelog.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

ACCESS = of_configs(
    Operation.ALTER_CONFIGS, refused=AlterConfigsResourceResponse, response=IncrementalAlterConfigsResponse, into="responses"
)


def handle(node: Node, message: IncrementalAlterConfigsRequest, request: Request) -> Work:
    resources = []
    for one in message.resources:
        made = (Change(config.name, config.config_operation, config.value) for config in one.configs)
        resources.append(Resource(one.resource_type, one.resource_name, (yield from slowly(made, 256))))
        yield None
    answers = yield from altered(node, message, resources, request, incremental=True)
    yield from discarded(message, resources)
    return Outcome.CLOSE if answers is None else IncrementalAlterConfigsResponse(responses=answers)


API = Api(IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, Versions(0, 1), ACCESS, handle)
