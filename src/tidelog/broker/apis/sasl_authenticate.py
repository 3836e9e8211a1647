"""SaslAuthenticate (36): refused if no authentication is needed, or it is already done; `server.secured` answers all others."""

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
    """Refuse it: it is out of place."""
    why = "SaslAuthenticate request received after successful authentication"
    return SaslAuthenticateResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message=why)


API = Api(SaslAuthenticateRequest, SaslAuthenticateResponse, SERVED, ACCESS, handle)
