"""DescribeDelegationToken (41): lists tokens, and the principals that may renew them (KIP-48).

Delegation tokens are off, as in Kafka without `delegation.token.secret.key`.
"""

from __future__ import annotations

from tidelog.broker.apis.create_delegation_token import ACCESS, token_refusal
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work
from tidelog.broker.requests.wide_requests import discarded
from tidelog.wire.fields import Versions
from tidelog.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest, DescribeDelegationTokenResponse


def handle(node: Node, message: DescribeDelegationTokenRequest, request: Request) -> Work:
    yield from discarded(message)
    return DescribeDelegationTokenResponse(error_code=token_refusal(request))


API = Api(DescribeDelegationTokenRequest, DescribeDelegationTokenResponse, Versions(0, 3), ACCESS, handle)
