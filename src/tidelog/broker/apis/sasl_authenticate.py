"""SaslAuthenticate (36): returns an error if the listener does not use SASL or the client has already authenticated.

`server.secured` handles all other SaslAuthenticate requests.
"""

from __future__ import annotations

from tidelog.broker.handling.access import NOTHING
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

ACCESS = NOTHING


def handle(node: Node, message: SaslAuthenticateRequest, request: Request) -> SaslAuthenticateResponse:
    why = "SaslAuthenticate request received after successful authentication"
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=why)


API = Api(SaslAuthenticateRequest, SaslAuthenticateResponse, Versions(0, 2), ACCESS, handle)
