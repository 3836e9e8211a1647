"""What the APIs of delegation tokens answer where these are off (KIP-48): Kafka's error codes, in its order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tidelog.security.client_config import PLAINTEXT
from tidelog.security.principal import ANONYMOUS
from tidelog.wire.error_codes import ErrorCode

if TYPE_CHECKING:
    from tidelog.broker.server.request import Request


def token_refusal(request: Request) -> ErrorCode:
    """Return the error code: a client that nobody has authenticated may not ask for tokens at all."""
    if request.listener.protocol == PLAINTEXT or request.principal == ANONYMOUS:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
