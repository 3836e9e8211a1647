"""SASL on a connection to another node: which mechanism, then its messages in SaslAuthenticate (KIP-43, KIP-152, KIP-368).

A mechanism's messages are made by another thread: those of SCRAM take milliseconds of a processor's time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from tidelog.broker.cluster.peer_connection import PeerConnection
from tidelog.errors import AuthenticationError, ProtocolError, SecurityProtocolError, UnsupportedVersionError
from tidelog.security.access import SaslClient
from tidelog.wire.error_codes import ErrorCode, code_name
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

MOST_MESSAGES: Final = 8
"""No mechanism has more; a server that always wants another one is no server."""


async def authenticate(connection: PeerConnection, client: SaslClient, offered: Mapping[int, tuple[int, int]]) -> int:
    """Authenticate; return how long the session lasts in ms, 0 forever.

    Raises AuthenticationError, SecurityProtocolError where the port wants no SASL or lacks that mechanism, and what ends the
    connection.
    """
    place = connection.place
    newest = offered.get(SaslAuthenticateRequest.API_KEY, (0, -1))[1]
    if newest < 0:
        raise UnsupportedVersionError("the node does not support SaslAuthenticate, which Kafka has since 1.0", path=place)
    answer: SaslHandshakeResponse = await connection.send(SaslHandshakeRequest(client.mechanism), 1, SaslHandshakeResponse)
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        found = ", ".join(sorted(answer.mechanisms))
        raise SecurityProtocolError(
            "the port does not offer this SASL mechanism", path=place, found=found, expected=client.mechanism
        )
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise SecurityProtocolError("the port does not use SASL", path=place, found="PLAINTEXT or SSL", expected="SASL")
    if answer.error_code:
        raise AuthenticationError("the node refuses to authenticate", path=place, found=code_name(answer.error_code))
    version = min(newest, 2)
    message: bytes | None = await asyncio.to_thread(client.first)
    for _ in range(MOST_MESSAGES):
        assert message is not None
        said: SaslAuthenticateResponse = await connection.send(
            SaslAuthenticateRequest(message), version, SaslAuthenticateResponse
        )
        if said.error_code:
            why = said.error_message or code_name(said.error_code)
            raise AuthenticationError(f"the node refuses {client.mechanism}: {why}", path=place)
        message = await asyncio.to_thread(client.respond, bytes(said.auth_bytes))
        if message is None:
            return said.session_lifetime_ms
    raise ProtocolError(f"{client.mechanism} does not complete", path=place)
