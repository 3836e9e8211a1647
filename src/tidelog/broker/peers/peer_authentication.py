"""SASL on a connection to another node: SaslHandshake, then the mechanism's messages in SaslAuthenticate (KIP-43, KIP-152,
KIP-368).

Another thread computes a mechanism's messages, because SCRAM takes milliseconds of CPU time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from tidelog.broker.peers.peer_connection import PeerConnection
from tidelog.errors import AuthenticationError, ProtocolError, SecurityProtocolError, UnsupportedVersionError
from tidelog.security.access import SaslClient
from tidelog.wire.error_codes import ErrorCode, code_name
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

MOST_MESSAGES: Final = 8
"""The most messages that the client sends in any mechanism; a server that asks for more is broken."""


async def authenticate(connection: PeerConnection, client: SaslClient, offered: Mapping[int, tuple[int, int]]) -> int:
    """Authenticate, and return the session lifetime in ms; 0 means no limit.

    Raises AuthenticationError if one side rejects the other, SecurityProtocolError if the port does not use SASL or lacks the
    mechanism, UnsupportedVersionError if the node lacks SaslAuthenticate, ProtocolError if the node does not end the exchange,
    and the error that ends the connection.
    """
    place = connection.place
    newest = offered.get(SaslAuthenticateRequest.API_KEY, (0, -1))[1]
    if newest < 0:
        raise UnsupportedVersionError("the node does not support SaslAuthenticate, which Kafka has had since 1.0", path=place)
    answer: SaslHandshakeResponse = await connection.send(SaslHandshakeRequest(client.mechanism), 1, SaslHandshakeResponse)
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        found = ", ".join(sorted(answer.mechanisms))
        raise SecurityProtocolError(
            "the SASL mechanism is not enabled on the listener", path=place, found=found, expected=client.mechanism
        )
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise SecurityProtocolError("the port does not use SASL", path=place, found="PLAINTEXT or SSL", expected="SASL")
    if answer.error_code:
        raise AuthenticationError("the node refused authentication", path=place, found=code_name(answer.error_code))
    version = min(newest, 2)
    message: bytes | None = await asyncio.to_thread(client.first)
    for _ in range(MOST_MESSAGES):
        assert message is not None
        said: SaslAuthenticateResponse = await connection.send(
            SaslAuthenticateRequest(message), version, SaslAuthenticateResponse
        )
        if said.error_code:
            why = said.error_message or code_name(said.error_code)
            raise AuthenticationError(f"the node rejects the {client.mechanism} authentication: {why}", path=place)
        message = await asyncio.to_thread(client.respond, bytes(said.auth_bytes))
        if message is None:
            return said.session_lifetime_ms
    raise ProtocolError(f"the {client.mechanism} exchange did not complete", path=place)
