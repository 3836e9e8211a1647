"""SASL on a broker's connection: it handles requests instead of `Dispatcher` until the client has authenticated.

| a request before authentication | result |
|---|---|
| ApiVersions, once | its response |
| SaslHandshake for an enabled mechanism, then SaslAuthenticate, or bare messages after version 0 | the mechanism's replies |
| SaslHandshake for a mechanism that is not enabled | UNSUPPORTED_SASL_MECHANISM with the enabled ones; connection closed |
| a wrong message, password or token | SASL_AUTHENTICATION_FAILED after a tenth of a second; the connection is closed |
| another request after SaslHandshake | ILLEGAL_SASL_STATE if the response schema has an error code; connection closed |
| anything else, or more than `MAX_BYTES` at once | the connection is closed without a response |

If sessions expire (`connections.max.reauth.ms`, KIP-368), this class keeps checking requests. A client re-authenticates between
its requests, as the same principal; the table applies again, starting with the handshake. A client that does not re-authenticate
is disconnected at its first request after the session's end. A handshake within `REAUTHENTICATION_S` of the last one gets
ILLEGAL_SASL_STATE.
"""

from __future__ import annotations

import logging
from struct import Struct
from time import monotonic
from typing import Any, Final, Protocol

from tidelog.broker.dispatch.framed_request import FramedRequest
from tidelog.broker.requests.request import Outcome
from tidelog.broker.settings.listener_security import ListenerSecurity, SaslServer
from tidelog.errors import AuthenticationError, ProtocolError
from tidelog.security.oauth_bearer import OAuthBearerServer
from tidelog.security.principal import USER, Principal
from tidelog.wire.codec import Bytes, Message, decode
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import RESPONSES
from tidelog.wire.headers import read_request_header, response_chunks
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

logger = logging.getLogger("tidelog.broker")

MAX_HELD_BYTES: Final = 64 * 1024
"""The most bytes kept for a connection before it authenticates."""

MAX_BYTES: Final = MAX_HELD_BYTES - 4
"""The largest request before authentication, without its size prefix. Kafka's `sasl.server.max.receive.size` is 512 KiB."""

FAILED_S: Final = 0.1
"""Kafka's `connection.failed.authentication.delay.ms`: the delay slows down password guessing."""

REAUTHENTICATION_S: Final = 1.0
"""The shortest time between the starts of two re-authentications, as in Kafka."""

MAX_LIFETIME_MS: Final = (1 << 63) - 1
"""The longest session lifetime that the response's field can hold; a token may be valid for longer."""

_NO_ERROR: Final = b"\0\0"
_SHORT = Struct(">h")
_SIZE = Struct(">i")
_VERSIONS: Final = {SaslHandshakeRequest.API_KEY: 1, SaslAuthenticateRequest.API_KEY: 2}


class GuardedRequest(FramedRequest, Protocol):
    """A request on a connection that must authenticate before other requests are served."""

    def authenticated(self, principal: Principal, *, is_forever: bool) -> None:
        """Serve requests of `principal` from now on. Unless `is_forever`, the guard keeps checking them."""

    def dispatch(self, data: memoryview, position: int, end: int) -> list[Bytes] | Outcome:
        """Handle a frame that the guard has accepted."""

    def refuse_later(self, chunks: list[Bytes], delay_s: float) -> None:
        """Send a last response after a delay, then close. Nothing is read until then."""

    def count_refusal(self, why: str) -> None:
        """Count and log a failed authentication."""


class Authentication:
    """Handles the frames of one connection before the dispatcher gets them. Use only on the event loop's thread."""

    def __init__(self, connection: GuardedRequest, security: ListenerSecurity) -> None:
        self._connection = connection
        self._security = security
        self._server: SaslServer | None = None
        self._mechanism = ""
        self._is_bare = False
        self._is_other = False
        self._ends_at = float("inf")
        self._knows_versions = False
        self._began_again_at = float("-inf")
        self.is_over = False
        """Whether the client has authenticated, so that its requests go to `Dispatcher`."""

    def handle(self, connection: GuardedRequest, data: memoryview, position: int, end: int) -> list[Bytes] | Outcome:
        """Answer a frame in place of `Dispatcher`. If a bug makes this fail, close the connection and admit no client."""
        try:
            return self._handle(connection, data, position, end)
        except Exception:
            logger.exception("%s could not authenticate", connection)
            return Outcome.CLOSE

    def _handle(self, connection: GuardedRequest, data: memoryview, position: int, end: int) -> list[Bytes] | Outcome:
        if self._is_bare:
            return self._bare(bytes(data[position:end]))
        if end - position < _SHORT.size:
            return Outcome.CLOSE
        (key,) = _SHORT.unpack_from(data, position)
        if self._server is None and not self._is_other:
            if self.is_over:
                if key != SaslHandshakeRequest.API_KEY or not self._begins_again():
                    return self._in_session(connection, data, position, end)
            elif key == ApiVersionsRequest.API_KEY and not self._knows_versions:
                return self._versions(connection, data, position, end)
            elif key != SaslHandshakeRequest.API_KEY:
                return self._out_of_place(key)
        elif self._is_other:
            self._note("it chose a different mechanism for re-authentication")  # Kafka sends no response here either.
            return Outcome.CLOSE
        elif key != SaslAuthenticateRequest.API_KEY:
            return self._out_of_place(key, data[position:end])
        try:
            header, body = read_request_header(data, position, end)
            version = header.api_version
            if not 0 <= version <= _VERSIONS[key]:
                return Outcome.CLOSE
            connection.correlation_id = header.correlation_id
            if key == SaslHandshakeRequest.API_KEY:
                handshake = decode(SaslHandshakeRequest, version, data[:end], body)
                return self._handshake(handshake.mechanism, version)
            message = decode(SaslAuthenticateRequest, version, data[:end], body)
        except ProtocolError as error:
            logger.info("%s was closed: %s", connection, error)
            return Outcome.CLOSE
        return self._authenticate(bytes(message.auth_bytes), version)

    def _in_session(self, connection: GuardedRequest, data: memoryview, position: int, end: int) -> list[Bytes] | Outcome:
        if monotonic() < self._ends_at:
            return connection.dispatch(data, position, end)
        logger.info("%s was closed: its session expired without re-authentication", connection)
        return Outcome.CLOSE

    def _begins_again(self) -> bool:
        """Return whether a handshake may begin a re-authentication. If not, the dispatcher answers ILLEGAL_SASL_STATE."""
        now = monotonic()
        if now - self._began_again_at < REAUTHENTICATION_S:
            return False
        self._began_again_at = now
        return True

    def _versions(self, connection: GuardedRequest, data: memoryview, position: int, end: int) -> list[Bytes] | Outcome:
        answer = connection.dispatch(data, position, end)
        # Size and correlation id come first in every version. A client whose request was refused may ask again.
        self._knows_versions = isinstance(answer, list) and b"".join(answer)[8:10] == _NO_ERROR
        return answer

    def _out_of_place(self, key: int, frame: memoryview | None = None) -> Outcome:
        """Close the connection after an unexpected request. If `frame` arrived during authentication and the response schema has
        an error code field, answer ILLEGAL_SASL_STATE first.
        """
        logger.debug("%s was closed: it sent API %d before authentication", self._connection, key)
        response = RESPONSES.get(key)
        if frame is None or response is None:
            return Outcome.CLOSE
        try:
            header, _ = read_request_header(frame)
        except ProtocolError:
            return Outcome.CLOSE
        version = header.api_version
        if not any(one.name == "error_code" and version in one.versions for one in response.FIELDS):
            return Outcome.CLOSE
        if version not in response.VERSIONS:
            return Outcome.CLOSE
        self._connection.correlation_id = header.correlation_id
        answer: Any = response()
        answer.error_code = ErrorCode.ILLEGAL_SASL_STATE
        return self._refuse(answer, version, f"it sent API {key} during authentication")

    def _handshake(self, mechanism: str, version: int) -> list[Bytes] | Outcome:
        enabled = list(self._security.mechanisms)
        if mechanism not in enabled:
            if self.is_over:
                self._note(
                    "it chose a mechanism that is not enabled, for re-authentication"
                )  # Kafka sends no response here either.
                return Outcome.CLOSE
            answer = SaslHandshakeResponse(ErrorCode.UNSUPPORTED_SASL_MECHANISM, enabled)
            return self._refuse(answer, version, "the mechanism is not enabled")
        self._is_other = self.is_over and mechanism != self._mechanism
        if not self._is_other:
            self._mechanism = mechanism
            self._server = self._security.sasl_server(mechanism)
            self._is_bare = version == 0
        return response_chunks(SaslHandshakeResponse(ErrorCode.NONE, enabled), version, self._connection.correlation_id)

    def _authenticate(self, message: bytes, version: int) -> list[Bytes] | Outcome:
        assert self._server is not None
        try:
            challenge = self._server.evaluate(message)
            is_complete = self._complete(self._server)
        except AuthenticationError as error:
            answer = SaslAuthenticateResponse(ErrorCode.SASL_AUTHENTICATION_FAILED, error.message)
            return self._refuse(answer, version, error.message)
        lifetime_ms = 0
        if is_complete and self._ends_at != float("inf"):
            lifetime_ms = min(max(int((self._ends_at - monotonic()) * 1000), 1), MAX_LIFETIME_MS)
        answer = SaslAuthenticateResponse(ErrorCode.NONE, "", challenge, lifetime_ms)
        return response_chunks(answer, version, self._connection.correlation_id)

    def _bare(self, message: bytes) -> list[Bytes] | Outcome:
        """Authenticate with a message that has no request around it, as clients before Kafka 1.0 send it."""
        assert self._server is not None
        try:
            challenge = self._server.evaluate(message)
            self._is_bare = not self._complete(self._server)
        except AuthenticationError as error:
            self._note(error.message)
            return Outcome.CLOSE
        return [_SIZE.pack(len(challenge)) + challenge]

    def _complete(self, server: SaslServer) -> bool:
        """Set the principal and return True if the mechanism has finished, otherwise return False. Raises AuthenticationError if
        the principal changes.
        """
        if not server.is_complete:
            return False
        assert server.name is not None
        principal = Principal(USER, server.name)
        connection = self._connection
        before = connection.principal
        if self.is_over and before != principal:
            raise AuthenticationError(
                f"Cannot change principals during re-authentication from {before.kind}.{before.name}: {USER}.{principal.name}"
            )
        self._ends_at = float("inf")
        session_ms = self._security.sessions_ms[self._mechanism]
        if session_ms:
            self._ends_at = monotonic() + session_ms / 1000
        if isinstance(server, OAuthBearerServer) and server.expires_s is not None:
            self._ends_at = min(self._ends_at, monotonic() + server.seconds_left)
        self._server = None
        self.is_over = True
        connection.authenticated(principal, is_forever=self._ends_at == float("inf"))
        return True

    def _refuse(self, answer: Message, version: int, why: str) -> Outcome:
        self._note(why)
        self._connection.refuse_later(response_chunks(answer, version, self._connection.correlation_id), FAILED_S)
        return Outcome.LATER

    def _note(self, why: str) -> None:
        self._connection.count_refusal(why)
