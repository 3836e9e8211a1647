"""Wraps clients' requests that only the controller can answer, unchanged, in an Envelope (KIP-590).

The envelope names the client's address and its principal (``DefaultPrincipalData`` after a two-byte version). The response holds
the frame for the client, including its header.
"""

from __future__ import annotations

import ipaddress
from struct import Struct

from tidelog.errors import BrokerError, UnsupportedVersionError
from tidelog.wire.codec import encode
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Bytes
from tidelog.wire.messages.envelope import DefaultPrincipalData, EnvelopeRequest, EnvelopeResponse

PRINCIPAL_VERSION = 0

_VERSION = Struct(">h")


def envelope(frame: Bytes, principal: tuple[str, str], client_host: str) -> EnvelopeRequest:
    """Wrap a request's frame, with its header and without the size. `principal` is a type and a name, `client_host` an IP
    address.
    """
    kind, name = principal
    data = b"".join(encode(DefaultPrincipalData(kind, name), PRINCIPAL_VERSION))
    # An IPv6 socket address includes a scope id, which is valid on this machine only.
    address = ipaddress.ip_address(client_host.partition("%")[0])
    return EnvelopeRequest(bytes(frame), _VERSION.pack(PRINCIPAL_VERSION) + data, address.packed)


def unwrapped(response: EnvelopeResponse, place: str) -> bytes:
    """Return the frame in the response. Raises UnsupportedVersionError if the controller does not support the version of the
    client's request, BrokerError for any other error.
    """
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        raise UnsupportedVersionError("the controller does not support the version of the client's request", path=place)
    if response.error_code or response.response_data is None:
        try:
            name = ErrorCode(response.error_code).name
        except ValueError:
            name = str(response.error_code)
        message = "the controller refuses to answer a client's request"
        raise BrokerError(message, error_code=response.error_code, path=place, found=name)
    return response.response_data
