"""RenewDelegationToken (39): makes a token expire later (KIP-48).

Delegation tokens are off, as in Kafka without `delegation.token.secret.key`.
"""

from __future__ import annotations

from tidelog.broker.apis.create_delegation_token import ACCESS, token_refusal
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.wire.fields import Versions
from tidelog.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


def handle(node: Node, message: RenewDelegationTokenRequest, request: Request) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=token_refusal(request), expiry_timestamp_ms=-1)


API = Api(RenewDelegationTokenRequest, RenewDelegationTokenResponse, Versions(0, 2), ACCESS, handle)
