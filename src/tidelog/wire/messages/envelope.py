"""Envelope (key 58): a broker forwards a client's request to the controller, and gets the client's response (KIP-590).

`request_data` is the client's unchanged request, from its header on, without the frame's size. `response_data` has the same form.
`client_host_address` is 4 or 16 bytes. The principal is a two-byte version, 0, followed by a `DefaultPrincipalData`.

| version | what it changed |
|---|---|
| 0 | flexible from the start |
"""

from __future__ import annotations

from tidelog.wire.fields import Message, boolean, data, int16, string


class DefaultPrincipalData(Message, versions="0", flexible="0+"):
    type: str = string()
    name: str = string()
    token_authenticated: bool = boolean()


class EnvelopeRequest(Message, api="Envelope", key=58, versions="0", flexible="0+"):
    request_data: bytes = data()
    request_principal: bytes | None = data(nullable="0+")
    client_host_address: bytes = data()


class EnvelopeResponse(Message, api="Envelope", key=58, versions="0", flexible="0+"):
    response_data: bytes | None = data(nullable="0+", default=None)
    error_code: int = int16()
