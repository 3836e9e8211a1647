"""SaslHandshake (17): returns an error if the listener does not use SASL or the client has already authenticated.

`server.secured` handles all other SaslHandshake requests.
"""

from __future__ import annotations

from tidelog.broker.handling.access import NOTHING
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

ACCESS = NOTHING


def handle(node: Node, message: SaslHandshakeRequest, request: Request) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)


API = Api(SaslHandshakeRequest, SaslHandshakeResponse, Versions(0, 1), ACCESS, handle)
