"""The error codes of the delegation token APIs, which are off (KIP-48). The codes and the order of the checks are Kafka's."""

from __future__ import annotations

from tidelog.broker.requests.request import Request
from tidelog.security.client_config import PLAINTEXT
from tidelog.security.principal import ANONYMOUS
from tidelog.wire.error_codes import ErrorCode


def token_refusal(request: Request) -> ErrorCode:
    """Return the error code: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED for an unauthenticated client or a PLAINTEXT listener,
    DELEGATION_TOKEN_AUTH_DISABLED otherwise.
    """
    if request.listener.protocol == PLAINTEXT or request.principal == ANONYMOUS:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
