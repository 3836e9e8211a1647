"""SASL on a client's connection: the client names the mechanism, then both sides exchange its messages until it completes
(KIP-43, KIP-152, KIP-368).

| the broker offers | the mechanism's messages are sent |
|---|---|
| SaslHandshake v1 (Kafka 1.0) | in SaslAuthenticate, whose response has the error |
| SaslHandshake v0 | bare, each after its size; on an error the broker closes the connection |

A session may expire (KIP-368). The connection authenticates again before that, between two requests.
"""

from __future__ import annotations

from typing import Final, Protocol, TypeVar

from tidelog.client.connections.addresses import BrokerAddress
from tidelog.errors import AuthenticationError, BrokerUnreachableError, ProtocolError, SecurityProtocolError
from tidelog.security.access import SaslClient
from tidelog.wire.codec import Message
from tidelog.wire.error_codes import ErrorCode, code_name
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

M = TypeVar("M", bound=Message)

MOST_MESSAGES: Final = 8
"""The largest number of messages in one exchange. No mechanism needs this many; the limit stops a server that never finishes."""


class Connection(Protocol):
    """The part of a connection that authentication needs."""

    address: BrokerAddress

    def offers(self, request: type[Message], version: int = 0) -> bool: ...
    def version(self, request: type[Message], *, newest: int, oldest: int = 0) -> int: ...
    def ask(self, message: Message, version: int, response: type[M]) -> M: ...
    def ask_bare(self, message: bytes) -> bytes: ...


def authenticate(connection: Connection, client: SaslClient) -> int:
    """Authenticate; return the session's length in ms, 0 for no limit.

    Raises AuthenticationError; SecurityProtocolError if the port does not use SASL or lacks the mechanism.
    """
    place = str(connection.address)
    if not connection.offers(SaslHandshakeRequest):
        raise SecurityProtocolError("the port does not use SASL", path=place, expected=client.mechanism)
    version = connection.version(SaslHandshakeRequest, newest=1)
    answer = connection.ask(SaslHandshakeRequest(client.mechanism), version, SaslHandshakeResponse)
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        raise SecurityProtocolError(
            "the SASL mechanism is not enabled on the listener",
            path=place,
            found=", ".join(sorted(answer.mechanisms)),
            expected=client.mechanism,
        )
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise SecurityProtocolError("the port does not use SASL", path=place, found="PLAINTEXT or SSL", expected="SASL")
    if answer.error_code:
        raise AuthenticationError("the broker refused authentication", path=place, found=code_name(answer.error_code))
    return _framed(connection, client) if version else _bare(connection, client)


def _framed(connection: Connection, client: SaslClient) -> int:
    version = connection.version(SaslAuthenticateRequest, newest=2)
    message: bytes | None = client.first()
    for _ in range(MOST_MESSAGES):
        assert message is not None
        answer = connection.ask(SaslAuthenticateRequest(message), version, SaslAuthenticateResponse)
        if answer.error_code:
            raise AuthenticationError(
                f"the broker refuses {client.mechanism}: {answer.error_message or code_name(answer.error_code)}",
                path=str(connection.address),
            )
        message = _respond(connection, client, answer.auth_bytes)
        if message is None:
            return answer.session_lifetime_ms
    raise ProtocolError(f"the {client.mechanism} exchange did not complete", path=str(connection.address))


def _bare(connection: Connection, client: SaslClient) -> int:
    message: bytes | None = client.first()
    for _ in range(MOST_MESSAGES):
        assert message is not None
        try:
            challenge = connection.ask_bare(message)
        except BrokerUnreachableError:
            raise AuthenticationError(
                f"the broker closed the connection: perhaps wrong credentials for {client.mechanism}",
                path=str(connection.address),
            ) from None
        message = _respond(connection, client, challenge)
        if message is None:
            return 0
    raise ProtocolError(f"the {client.mechanism} exchange did not complete", path=str(connection.address))


def _respond(connection: Connection, client: SaslClient, challenge: bytes) -> bytes | None:
    try:
        return client.respond(challenge)
    except AuthenticationError as error:
        error.path = str(connection.address)
        raise
