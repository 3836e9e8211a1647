"""AlterConfigs (33): replaces all properties of a resource (KIP-133).

IncrementalAlterConfigs supersedes this API. Each resource succeeds or fails on its own. See `config_changes`.
"""

from __future__ import annotations

from tidelog.broker.configs.config_changes import Change, Resource
from tidelog.broker.configs.config_changes import Operation as ChangeOperation
from tidelog.broker.configs.config_forwarding import altered
from tidelog.broker.handling.access import of_configs
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Outcome, Request
from tidelog.broker.requests.slices import Work, slowly
from tidelog.broker.requests.wide_requests import discarded
from tidelog.security.acl import Operation
from tidelog.wire.fields import Versions
from tidelog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResourceResponse, AlterConfigsResponse

ACCESS = of_configs(
    Operation.ALTER_CONFIGS, refused=AlterConfigsResourceResponse, response=AlterConfigsResponse, into="responses"
)


def handle(node: Node, message: AlterConfigsRequest, request: Request) -> Work:
    resources = []
    for one in message.resources:
        changes = yield from slowly((Change(config.name, ChangeOperation.SET, config.value) for config in one.configs), 256)
        resources.append(Resource(one.resource_type, one.resource_name, changes))
        yield None
    answers = yield from altered(node, message, resources, request, incremental=False)
    yield from discarded(message, resources)
    return Outcome.CLOSE if answers is None else AlterConfigsResponse(responses=answers)


API = Api(AlterConfigsRequest, AlterConfigsResponse, Versions(0, 2), ACCESS, handle)
