"""Requests of clients that only the controller answers: sent on as they came, in an Envelope (KIP-590).

The envelope names the client: its principal, as ``DefaultPrincipalData`` behind two bytes of version, and its address. The answer
has the response's frame, header included, as the client gets it.
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
    """Wrap a request's frame, header included and size not. `principal` is its type and name, `client_host` an IP address."""
    kind, name = principal
    data = b"".join(encode(DefaultPrincipalData(kind, name), PRINCIPAL_VERSION))
    # A socket of IPv6 names a scope, too, which is this machine's own.
    address = ipaddress.ip_address(client_host.partition("%")[0])
    return EnvelopeRequest(bytes(frame), _VERSION.pack(PRINCIPAL_VERSION) + data, address.packed)


def unwrapped(response: EnvelopeResponse, place: str) -> bytes:
    """Return the response's frame. Raises UnsupportedVersionError for a version that it lacks, BrokerError else."""
    if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
        raise UnsupportedVersionError("the controller does not take that version of the request", path=place)
    if response.error_code or response.response_data is None:
        try:
            name = ErrorCode(response.error_code).name
        except ValueError:
            name = str(response.error_code)
        message = "the controller refuses to answer a client's request"
        raise BrokerError(message, error_code=response.error_code, path=place, found=name)
    return response.response_data
