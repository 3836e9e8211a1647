"""SaslAuthenticate (36): an error if no authentication is needed or it is complete; `server.secured` handles all others."""

from __future__ import annotations

from tidelog.broker.api import Api
from tidelog.broker.authorization.access import NOTHING
from tidelog.broker.node import Node
from tidelog.broker.server.request import Request
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

SERVED = Versions(0, 2)
"""Changes by version: the table of `tidelog.wire.messages.sasl_authenticate`."""

ACCESS = NOTHING


def handle(node: Node, message: SaslAuthenticateRequest, request: Request) -> SaslAuthenticateResponse:
    """Answer with an error: the request is out of place."""
    why = "SaslAuthenticate request received after successful authentication"
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=why)


API = Api(SaslAuthenticateRequest, SaslAuthenticateResponse, SERVED, ACCESS, handle)
