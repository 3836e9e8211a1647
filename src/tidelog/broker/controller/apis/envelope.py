"""Envelope (58): answers a client's request that a broker forwards (KIP-590). Access is checked for the client's principal, not
the broker's.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import cast

from tidelog.broker.controller.controller_node import ControllerNode
from tidelog.broker.controller.enveloped import EnvelopedRequest
from tidelog.broker.controller.registrations import of_brokers
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Until, Work
from tidelog.errors import ProtocolError
from tidelog.security.principal import ANONYMOUS, Principal
from tidelog.wire.codec import decode
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.envelope import DefaultPrincipalData, EnvelopeRequest, EnvelopeResponse

_VERSION_BYTES = 2


def handle(node: Node, message: EnvelopeRequest, request: Request) -> Work:
    """Return the envelope's response, which contains the response to the client's request."""
    controller = cast("ControllerNode", node)
    try:
        principal = _principal(message.request_principal)
        host = str(ipaddress.ip_address(message.client_host_address))
    except (ProtocolError, ValueError):
        return EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)

    def begin(done: Callable[[object], None]) -> None:
        EnvelopedRequest(request, principal, host, done).begin(controller.dispatcher, message.request_data)

    frame = yield Until(begin)
    if frame is None:
        return EnvelopeResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    return EnvelopeResponse(response_data=cast("bytes", frame))


def _principal(data: bytes | None) -> Principal:
    if data is None:
        return ANONYMOUS
    found = decode(DefaultPrincipalData, int.from_bytes(data[:_VERSION_BYTES], "big"), data, _VERSION_BYTES)
    return Principal(found.type, found.name)


API = Api(EnvelopeRequest, EnvelopeResponse, Versions(0, 0), of_brokers(EnvelopeResponse), handle)
