"""A connection to another node of the cluster: opened on first use, and reopened after a loss.

Each connection begins with ApiVersions in the newest version that the peer supports. Only version 4 lists features whose range
starts at 0. No request uses a higher version than the peer offers.

| what happens | raises |
|---|---|
| no connection, a lost connection, no response in time | BrokerUnreachableError |
| one side rejects the other's certificate, password or token | the same, because certificates and passwords may be renewed |
| only one side is configured for TLS, or for SASL | SecurityProtocolError |
| a response that violates the protocol | ProtocolError |
| the two sides share no version of a request | UnsupportedVersionError |

If `access` configures them, TLS comes first, and SASL follows ApiVersions. Other threads read files and tokens and hash
passwords; the TLS handshake blocks the loop for about a millisecond. A SASL session with a limited lifetime (KIP-368) is renewed
before it expires; requests wait for the renewal.

A channel never retries a request: only the caller knows whether a retry is safe. Requests are pipelined. Kafka answers them in
order, so a request that times out closes the connection for all pending requests. The backoff after a failed connection attempt
starts at 50 ms and doubles up to one second.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version as version_of_package
from typing import Any

from tidelog.broker.peers.peer_connection import PeerConnection
from tidelog.errors import (
    AuthenticationError,
    BrokerUnreachableError,
    InvalidArgumentError,
    ProtocolError,
    SecurityProtocolError,
    TidelogError,
    UnsupportedVersionError,
)
from tidelog.security.access import Access, SaslClient
from tidelog.security.tls_errors import tls_error
from tidelog.wire.error_codes import ErrorCode, code_name
from tidelog.wire.fields import RESPONSES, Message
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from tidelog.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from tidelog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

CONNECT_TIMEOUTS_S = 10.0, 30.0
"""Kafka's ``socket.connection.setup.timeout.ms`` and ``….max.ms``: the timeout doubles after each failed attempt (KIP-601), since
a busy peer may need longer than the first timeout for TLS, SASL and ApiVersions.
"""

BACKOFF_S = 0.05
MAX_BACKOFF_S = 1.0

RENEWAL_SHARE = 0.85
"""A session is renewed after this share of its lifetime, as in Kafka's clients."""

SOFTWARE = "tidelog"

_HANDSHAKE_VERSIONS = (4, 3, 0)

MOST_MESSAGES = 8
"""The most messages that the client sends in any SASL mechanism; a server that asks for more is broken."""


class Channel:
    """A connection to another node. Use only on the event loop's thread.

    `timeout_s` bounds a request from `call` to its response, including connecting and backoff. `versions` gives the lowest and
    highest version of each API; with it the channel sends no ApiVersions request, which brokers before 0.10.0 do not know.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout_s: float,
        connect_timeouts_s: tuple[float, float] = CONNECT_TIMEOUTS_S,
        versions: Mapping[int, tuple[int, int]] | None = None,
        access: Access | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self.place = f"{host}:{port}"
        self.supported_features: dict[str, tuple[int, int]] = {}
        """The lowest and highest level that the peer supports, by feature name."""
        self.finalized_features: dict[str, int] = {}
        """The finalized level of each feature in the cluster, by name."""
        self.finalized_features_epoch = -1
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._connect_timeouts_s = connect_timeouts_s
        self._versions = versions
        self._access = access or Access()
        self._renewal_s = float("inf")
        self._offered: Mapping[int, tuple[int, int]] = {}
        self._connection: PeerConnection | None = None
        self._connecting: asyncio.Task[PeerConnection] | None = None
        self._failures = 0
        self._not_before = 0.0
        self._is_closed = False

    @property
    def is_connected(self) -> bool:
        """Whether a request would be sent without connecting first."""
        return self._connection is not None and self._connection.is_usable

    @property
    def in_flight(self) -> int:
        """The number of requests awaiting a response."""
        return self._connection.in_flight if self._connection is not None else 0

    @property
    def backoff_s(self) -> float:
        """The backoff in seconds before the next connection attempt; 0 if it may start now."""
        return 0.0 if self.is_connected else max(self._not_before - asyncio.get_running_loop().time(), 0.0)

    async def connect(self, timeout_s: float | None = None) -> None:
        """Connect unless connected. Raises what `call` raises."""
        try:
            async with asyncio.timeout(self._timeout_s if timeout_s is None else timeout_s):
                await self._connected()
        except TimeoutError:
            raise BrokerUnreachableError("could not connect in time", path=self.place) from None

    async def call(self, request: Message, *, version: int | None = None, timeout_s: float | None = None) -> Any:
        """Send a request and return its response. Record bytes in the response are views of the received frame.

        If `version` is None, the request uses the highest version that both sides know. Raises BrokerUnreachableError,
        SecurityProtocolError and ProtocolError. Raises UnsupportedVersionError for a version that the peer does not support,
        because the peer would close the connection.
        """
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        connection: PeerConnection | None = None
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._connected()
                version = self.version_of(type(request)) if version is None else self._offered_version(request, version)
                return await connection.send(request, version, RESPONSES[request.API_KEY])
        except TimeoutError:
            if connection is None:
                raise BrokerUnreachableError("could not connect in time", path=self.place) from None
            error = BrokerUnreachableError(f"the node did not answer {request.API_NAME} within {timeout_s:g} s", path=self.place)
            # Responses come in order, so all others are blocked by this one.
            connection.close(error)
            raise error from None

    @property
    def offered(self) -> Mapping[int, tuple[int, int]] | None:
        """The lowest and highest version of each API that the peer supports; None before the first connection."""
        return self._offered or None

    def offers(self, request: type[Message], version: int = 0) -> bool:
        """Whether the peer supports that version of a request or a later one. Valid only after the first connection."""
        return self._offered.get(request.API_KEY, (-1, -1))[1] >= version

    def _offered_version(self, request: Message, version: int) -> int:
        low, high = self._offered.get(request.API_KEY, (version, version))
        if not low <= version <= high:
            raise UnsupportedVersionError(
                f"the node does not support {request.API_NAME} v{version}", path=self.place, found=f"v{low} to v{high}"
            )
        return version

    def version_of(self, request: type[Message]) -> int:
        """Return the highest version of a request that both sides know. Valid only after the first connection. Raises
        UnsupportedVersionError.
        """
        low, high = self._offered.get(request.API_KEY, (0, -1))
        version = min(high, request.VERSIONS[-1])
        if version < max(low, request.VERSIONS[0]):
            raise UnsupportedVersionError(
                f"the node and this broker share no version of {request.API_NAME}",
                path=self.place,
                found="none" if high < 0 else f"v{low} to v{high}",
                expected=f"v{request.VERSIONS[0]} to v{request.VERSIONS[-1]}",
            )
        return version

    def close(self) -> None:
        """Close the channel for good. Pending calls raise BrokerUnreachableError. Idempotent."""
        self._is_closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._connection is not None:
            self._connection.close()

    # --- the connection

    async def _connected(self) -> PeerConnection:
        loop = asyncio.get_running_loop()
        held = self._connection if self._connection is not None and self._connection.is_usable else None
        if held is not None and self._connecting is None and loop.time() < self._renewal_s:
            return held
        if self._is_closed:
            raise BrokerUnreachableError("the channel is closed", path=self.place)
        if self._connecting is None:
            work = self._connect() if held is None else self._renew(held)
            self._connecting = loop.create_task(work, name=f"connecting to {self.place}")
            self._connecting.add_done_callback(self._over)
        connecting = self._connecting
        try:
            # Other callers may wait for the same attempt, so a cancelled caller does not cancel it.
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            if connecting.cancelled() and self._is_closed:
                raise BrokerUnreachableError("the channel is closed", path=self.place) from None
            raise

    def _over(self, task: asyncio.Task[PeerConnection]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # The caller may have been cancelled.

    async def _connect(self) -> PeerConnection:
        loop = asyncio.get_running_loop()
        wait_s = self._not_before - loop.time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        connection = PeerConnection(self.place, self._client_id, self._access.config)
        try:
            try:
                async with asyncio.timeout(self._connect_timeout_s()):
                    context = None if self._access.tls is None else await asyncio.to_thread(self._access.tls.get)
                    await loop.create_connection(lambda: connection, self.host, self.port, ssl=context)
                    await self._handshake(connection)
                    await self._authenticate(connection)
            except TimeoutError:
                raise BrokerUnreachableError("cannot connect: the node did not answer in time", path=self.place) from None
            except (AuthenticationError, InvalidArgumentError) as error:
                raise BrokerUnreachableError(f"cannot connect: {error}", path=self.place) from None
            except TidelogError:
                raise
            except OSError as error:
                raise self._refused(error) from None
        except BaseException as error:
            connection.close(error if isinstance(error, TidelogError) else None)
            self._failures += 1
            delay_s = min(BACKOFF_S * 2 ** (self._failures - 1), MAX_BACKOFF_S)
            # Jitter: clients that lost the same peer should not reconnect at the same moment.
            self._not_before = loop.time() + delay_s * random.uniform(0.8, 1.2)
            raise
        self._failures = 0
        self._connection = connection
        return connection

    def _connect_timeout_s(self) -> float:
        first_s, longest_s = self._connect_timeouts_s
        return min(first_s * float(1 << min(self._failures, 30)), max(first_s, longest_s))

    def _refused(self, error: OSError) -> TidelogError:
        tls = self._access.config.tls
        meant = None if tls is None else tls_error(error, self.place, has_key=tls.has_key)
        if isinstance(meant, SecurityProtocolError):
            return meant
        reason = str(meant) if meant is not None else error.strerror or str(error) or type(error).__name__
        if tls is not None and meant is None and isinstance(error, ConnectionResetError):
            reason = f"{reason}; the port may not speak TLS"
        return BrokerUnreachableError(f"cannot connect: {reason}", path=self.place)

    async def _authenticate(self, connection: PeerConnection) -> None:
        self._renewal_s = float("inf")
        client = await asyncio.to_thread(self._access.sasl_client) if self._access.config.sasl is not None else None
        if client is None:
            return
        lifetime_ms = await authenticate(connection, client, self._offered)
        if lifetime_ms > 0:
            self._renewal_s = asyncio.get_running_loop().time() + RENEWAL_SHARE * lifetime_ms / 1000

    async def _renew(self, connection: PeerConnection) -> PeerConnection:
        """Re-authenticate once all pending responses have arrived. If that fails, close the connection and open a new one."""
        try:
            async with asyncio.timeout(self._connect_timeout_s()):
                await self._authenticate(connection)
        except (TimeoutError, TidelogError) as error:
            connection.close(error if isinstance(error, BrokerUnreachableError) else None)
            return await self._connect()
        return connection

    async def _handshake(self, connection: PeerConnection) -> None:
        """Ask the peer for its API versions unless they were given at creation.

        A peer that does not know the request's version answers in v0 with the versions that it knows (KIP-511).
        """
        if self._versions is not None and self._access.config.sasl is None:
            self._offered = self._versions
            return
        request = ApiVersionsRequest(client_software_name=SOFTWARE, client_software_version=_software_version())
        version = _HANDSHAKE_VERSIONS[0]
        while True:
            answer: ApiVersionsResponse = await connection.send(request, version, ApiVersionsResponse)
            if answer.error_code == ErrorCode.UNSUPPORTED_VERSION and version:
                known_there = [api.max_version for api in answer.api_keys if api.api_key == ApiVersionsRequest.API_KEY]
                highest = min(*known_there, version - 1) if known_there else 0
                version = next(known for known in _HANDSHAKE_VERSIONS if known <= max(highest, 0))
                continue
            if answer.error_code:
                found = f"error {answer.error_code}"
                raise ProtocolError("the node answers ApiVersions with an error", path=self.place, found=found)
            break
        offered = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        self._offered = offered if self._versions is None else {**offered, **self._versions}
        self.supported_features = {one.name: (one.min_version, one.max_version) for one in answer.supported_features}
        self.finalized_features = {one.name: one.max_version_level for one in answer.finalized_features}
        self.finalized_features_epoch = answer.finalized_features_epoch


@cache
def _software_version() -> str:
    return version_of_package("tidelog")


async def authenticate(connection: PeerConnection, client: SaslClient, offered: Mapping[int, tuple[int, int]]) -> int:
    """Authenticate: SaslHandshake, then the mechanism's messages in SaslAuthenticate (KIP-43, KIP-152, KIP-368). Return the
    session lifetime in ms; 0 means no limit. Another thread computes the messages, because SCRAM takes milliseconds of CPU time.

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
