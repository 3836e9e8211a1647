"""AlterConfigs (33): gives a resource these properties instead of those that it has (KIP-133).

Superseded by IncrementalAlterConfigs. Each resource stands for itself. See `config_changes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.api import Api, Outcome, Request
from tidelog.broker.server.slices import Work, slowly
from tidelog.broker.settings.config_changes import Change, Operation, Resource, answers, change_all
from tidelog.broker.settings.config_forwarding import change_all_forwarded
from tidelog.errors import UnsupportedVersionError
from tidelog.wire.fields import Versions
from tidelog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse

if TYPE_CHECKING:
    from tidelog.broker.node import Node

SERVED = Versions(0, 2)
"""What each version changed: the table of `tidelog.wire.messages.alter_configs`."""


def handle(node: Node, message: AlterConfigsRequest, request: Request) -> Work:
    return _work(node, message, request)


def _work(node: Node, message: AlterConfigsRequest, request: Request) -> Work:
    resources = yield from slowly(
        (
            Resource(
                one.resource_type, one.resource_name, [Change(config.name, Operation.SET, config.value) for config in one.configs]
            )
            for one in message.resources
        ),
        64,
    )
    if node.forwarding is None:
        outcomes = yield from change_all(node, resources, incremental=False, validate_only=message.validate_only)
    else:
        try:
            outcomes = yield from change_all_forwarded(node, node.forwarding, message, resources, request, incremental=False)
        except UnsupportedVersionError:
            return Outcome.CLOSE  # Another controller leads: the client asks for versions again.
    return AlterConfigsResponse(responses=(yield from slowly(answers(outcomes), 64)))


API = Api(AlterConfigsRequest, AlterConfigsResponse, SERVED, handle)
