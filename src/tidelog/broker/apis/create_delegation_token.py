"""CreateDelegationToken (38): creates a token with which a client can authenticate as a principal (KIP-48).

Delegation tokens are off, as in Kafka without `delegation.token.secret.key`.
"""

from __future__ import annotations

from tidelog.broker.handling.access import Access
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Work
from tidelog.broker.requests.wide_requests import discarded
from tidelog.security.client_config import PLAINTEXT
from tidelog.security.principal import ANONYMOUS
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse

ACCESS = Access("nothing: delegation tokens are off for every client")


def handle(node: Node, message: CreateDelegationTokenRequest, request: Request) -> Work:
    requester = request.principal
    owner = (message.owner_principal_type, message.owner_principal_name)
    kind, name = owner if request.api_version >= 3 and all(owner) else (requester.kind, requester.name)
    yield from discarded(message)
    return CreateDelegationTokenResponse(
        error_code=token_refusal(request),
        principal_type=kind or "",
        principal_name=name or "",
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )


def token_refusal(request: Request) -> ErrorCode:
    """Return the error code of all delegation token APIs: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for an unauthenticated client or a
    PLAINTEXT listener, DELEGATION_TOKEN_AUTH_DISABLED otherwise. The codes and the order of the checks are Kafka's.
    """
    if request.listener.protocol == PLAINTEXT or request.principal == ANONYMOUS:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


API = Api(CreateDelegationTokenRequest, CreateDelegationTokenResponse, Versions(0, 3), ACCESS, handle)
