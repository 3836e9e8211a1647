"""SaslHandshake (17): an error if no authentication is needed or it is complete; `server.secured` handles all others."""

from __future__ import annotations

from tidelog.broker.api import Api
from tidelog.broker.authorization.access import NOTHING
from tidelog.broker.node import Node
from tidelog.broker.server.request import Request
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

SERVED = Versions(0, 1)
"""Changes by version: the table of `tidelog.wire.messages.sasl_handshake`."""

ACCESS = NOTHING


def handle(node: Node, message: SaslHandshakeRequest, request: Request) -> SaslHandshakeResponse:
    """Answer with an error: the request is out of place."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


API = Api(SaslHandshakeRequest, SaslHandshakeResponse, SERVED, ACCESS, handle)
