"""ExpireDelegationToken (40): makes a token expire earlier, or at once (KIP-48).

Delegation tokens are off, as in Kafka without `delegation.token.secret.key`.
"""

from __future__ import annotations

from tidelog.broker.apis.create_delegation_token import ACCESS, token_refusal
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.wire.fields import Versions
from tidelog.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse


def handle(node: Node, message: ExpireDelegationTokenRequest, request: Request) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=token_refusal(request), expiry_timestamp_ms=-1)


API = Api(ExpireDelegationTokenRequest, ExpireDelegationTokenResponse, Versions(0, 2), ACCESS, handle)
