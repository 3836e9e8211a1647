"""ConsumerGroupDescribe (69): describes groups of the new protocol (KIP-848), which is off here, as in Kafka 3.9 by default.

Admin clients then ask for the same group with DescribeGroups.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.broker.handling.access import within
from tidelog.broker.handling.api import Api
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work, slowly
from tidelog.broker.requests.wide_requests import discarded
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)

if TYPE_CHECKING:
    from tidelog.broker.node import Node

SERVED = Versions(0, 0)
"""The versions served here. `tidelog.wire.messages.consumer_group_describe` lists the changes of each version."""

ACCESS = within("nothing: it is off for everybody")


def handle(node: Node, message: ConsumerGroupDescribeRequest, request: Request) -> Work:
    return _work(message)


def _work(message: ConsumerGroupDescribeRequest) -> Work:
    code = ErrorCode.UNSUPPORTED_VERSION
    refused = (DescribedGroup(error_code=code, group_id=group_id) for group_id in message.group_ids)
    groups = yield from slowly(refused, 64)
    yield from discarded(message)
    return ConsumerGroupDescribeResponse(groups=groups)


API = Api(ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse, SERVED, ACCESS, handle)
