"""RenewDelegationToken (39): makes a token expire later (KIP-48).

Delegation tokens are off, as in Kafka without `delegation.token.secret.key`.
"""

from __future__ import annotations

from tidelog.broker.authorization.token_refusal import token_refusal
from tidelog.broker.handling.access import within
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.wire.fields import Versions
from tidelog.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

ACCESS = within("nothing: delegation tokens are off for every client")


def handle(node: Node, message: RenewDelegationTokenRequest, request: Request) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=token_refusal(request), expiry_timestamp_ms=-1)


API = Api(RenewDelegationTokenRequest, RenewDelegationTokenResponse, Versions(0, 2), ACCESS, handle)
