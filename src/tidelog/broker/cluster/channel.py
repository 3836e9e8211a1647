"""A connection to another node of the cluster: opened at its first use, and opened again after it was lost.

Each connection begins with ApiVersions, in the newest version that the peer takes: 4 shows features whose range begins with 0.
No request has a higher version than the peer offers.

| what happens | raises |
|---|---|
| no connection, connection lost, no answer in time | BrokerUnreachableError |
| one side does not believe the other's certificate, password or token | the same: certificates and passwords are renewed |
| the port wants TLS, or SASL, and this side does not; or the other way round | SecurityProtocolError |
| an answer that the protocol does not allow | ProtocolError |
| the peer offers no version of a request known here | UnsupportedVersionError |

Where `access` has them, TLS comes first, SASL after ApiVersions. Files and tokens are read, and passwords are worked on, by other
threads; of the handshake of TLS about a millisecond is the loop's. A session that has an end (KIP-368) is renewed before it:
requests wait for that.

No request is repeated here: callers know which ones may be. Requests may be sent before others are answered. Kafka answers them
in order, so one without an answer in time ends the connection for all that wait. After a failed attempt to connect, the next one
waits: 50 ms, and twice as long each time, up to a second.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version as version_of_package
from typing import Any

from tidelog.broker.cluster.peer_authentication import authenticate
from tidelog.broker.cluster.peer_connection import MAX_RESPONSE_BYTES, PeerConnection
from tidelog.errors import (
    AuthenticationError,
    BrokerUnreachableError,
    InvalidArgumentError,
    ProtocolError,
    SecurityProtocolError,
    TidelogError,
    UnsupportedVersionError,
)
from tidelog.security.access import Access
from tidelog.security.tls_errors import tls_error
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import RESPONSES, Message
from tidelog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

CONNECT_TIMEOUTS_S = 10.0, 30.0
"""Kafka's ``socket.connection.setup.timeout.ms`` and ``….max.ms``: each attempt after one that failed may take twice as long
(KIP-601), since a peer that is busy may need longer for TLS, SASL and ApiVersions than the first one has.
"""

BACKOFF_S = 0.05
MAX_BACKOFF_S = 1.0

RENEWAL_SHARE = 0.85
"""After this share of its time a session is renewed, as in Kafka's clients."""

SOFTWARE = "tidelog"

_HANDSHAKE_VERSIONS = (4, 3, 0)


class Channel:
    """A way to another node. Belongs to the loop's thread.

    `timeout_s` bounds a request, from `call` to its answer; connecting and its backoff are a part of it. With `versions`, the
    lowest and highest of each API that is used, the peer is not asked for its own: brokers before 0.10.0 could not say.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout_s: float,
        connect_timeouts_s: tuple[float, float] = CONNECT_TIMEOUTS_S,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        versions: Mapping[int, tuple[int, int]] | None = None,
        access: Access | None = None,
    ) -> None:
        self.host = host
        self.port = port
        self.place = f"{host}:{port}"
        self.supported_features: dict[str, tuple[int, int]] = {}
        """By name: the lowest and highest level that the peer supports."""
        self.finalized_features: dict[str, int] = {}
        """By name: the level that is in force in the cluster."""
        self.finalized_features_epoch = -1
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._connect_timeouts_s = connect_timeouts_s
        self._max_response_bytes = max_response_bytes
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
        """Whether a request would be sent at once."""
        return self._connection is not None and self._connection.is_usable

    @property
    def in_flight(self) -> int:
        """How many requests wait for their answers."""
        return self._connection.in_flight if self._connection is not None else 0

    @property
    def backoff_s(self) -> float:
        """How long the next attempt to connect would wait; 0 if it would not."""
        return 0.0 if self.is_connected else max(self._not_before - asyncio.get_running_loop().time(), 0.0)

    async def connect(self, timeout_s: float | None = None) -> None:
        """Make the connection, if there is none. Raises as `call`."""
        try:
            async with asyncio.timeout(self._timeout_s if timeout_s is None else timeout_s):
                await self._connected()
        except TimeoutError:
            raise BrokerUnreachableError("no connection in time", path=self.place) from None

    async def call(self, request: Message, *, version: int | None = None, timeout_s: float | None = None) -> Any:
        """Send a request and return its response; record bytes in it are views of the received frame.

        `version` None: the highest that both sides know. Raises BrokerUnreachableError, SecurityProtocolError,
        ProtocolError; UnsupportedVersionError where the peer takes others, as it would close the connection.
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
                raise BrokerUnreachableError("no connection in time", path=self.place) from None
            error = BrokerUnreachableError(f"no answer to {request.API_NAME} within {timeout_s:g} s", path=self.place)
            # Answers come in order: those of the others wait for this one.
            connection.close(error)
            raise error from None

    @property
    def offered(self) -> Mapping[int, tuple[int, int]] | None:
        """Lowest and highest version of each API that the peer takes; None before a connection was made."""
        return self._offered or None

    def offers(self, request: type[Message], version: int = 0) -> bool:
        """Whether the peer takes that version of a request, or a later one. Known once a connection was made."""
        return self._offered.get(request.API_KEY, (-1, -1))[1] >= version

    def _offered_version(self, request: Message, version: int) -> int:
        low, high = self._offered.get(request.API_KEY, (version, version))
        if not low <= version <= high:
            raise UnsupportedVersionError(
                f"the node does not support {request.API_NAME} v{version}", path=self.place, found=f"v{low} to v{high}"
            )
        return version

    def version_of(self, request: type[Message]) -> int:
        """Return a request's highest version that both sides know, once a connection was made. Raises UnsupportedVersionError."""
        low, high = self._offered.get(request.API_KEY, (0, -1))
        version = min(high, request.VERSIONS[-1])
        if version < max(low, request.VERSIONS[0]):
            raise UnsupportedVersionError(
                f"the node supports no known version of {request.API_NAME}",
                path=self.place,
                found="none" if high < 0 else f"v{low} to v{high}",
                expected=f"v{request.VERSIONS[0]} to v{request.VERSIONS[-1]}",
            )
        return version

    def close(self) -> None:
        """Close it for good; what waits raises BrokerUnreachableError. Idempotent."""
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
            # Others may wait for the same attempt: who gives up does not end it.
            return await asyncio.shield(connecting)
        except asyncio.CancelledError:
            if connecting.cancelled() and self._is_closed:
                raise BrokerUnreachableError("the channel is closed", path=self.place) from None
            raise

    def _over(self, task: asyncio.Task[PeerConnection]) -> None:
        self._connecting = None
        if not task.cancelled():
            task.exception()  # Its caller may no longer wait.

    async def _connect(self) -> PeerConnection:
        loop = asyncio.get_running_loop()
        wait_s = self._not_before - loop.time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        connection = PeerConnection(self.place, self._client_id, self._max_response_bytes, self._access.config)
        try:
            try:
                async with asyncio.timeout(self._connect_timeout_s()):
                    context = None if self._access.tls is None else await asyncio.to_thread(self._access.tls.get)
                    await loop.create_connection(lambda: connection, self.host, self.port, ssl=context)
                    await self._handshake(connection)
                    await self._authenticate(connection)
            except TimeoutError:
                raise BrokerUnreachableError("no connection: no answer in time", path=self.place) from None
            except (AuthenticationError, InvalidArgumentError) as error:
                raise BrokerUnreachableError(f"no connection: {error}", path=self.place) from None
            except TidelogError:
                raise
            except OSError as error:
                raise self._refused(error) from None
        except BaseException as error:
            connection.close(error if isinstance(error, TidelogError) else None)
            self._failures += 1
            delay_s = min(BACKOFF_S * 2 ** (self._failures - 1), MAX_BACKOFF_S)
            # Many that lost the same peer do not come back at the same moment.
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
        return BrokerUnreachableError(f"no connection: {reason}", path=self.place)

    async def _authenticate(self, connection: PeerConnection) -> None:
        self._renewal_s = float("inf")
        client = await asyncio.to_thread(self._access.sasl_client) if self._access.config.sasl is not None else None
        if client is None:
            return
        lifetime_ms = await authenticate(connection, client, self._offered)
        if lifetime_ms > 0:
            self._renewal_s = asyncio.get_running_loop().time() + RENEWAL_SHARE * lifetime_ms / 1000

    async def _renew(self, connection: PeerConnection) -> PeerConnection:
        """Authenticate again; answers that are still owed come first. A failure ends the connection, and a new one is made."""
        try:
            async with asyncio.timeout(self._connect_timeout_s()):
                await self._authenticate(connection)
        except (TimeoutError, TidelogError) as error:
            connection.close(error if isinstance(error, BrokerUnreachableError) else None)
            return await self._connect()
        return connection

    async def _handshake(self, connection: PeerConnection) -> None:
        """Ask what the peer takes, unless that was said from the start.

        One that does not know the version answers in v0 and names those that it knows (KIP-511).
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
                raise ProtocolError("the node does not report its versions", path=self.place, found=found)
            break
        offered = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        self._offered = offered if self._versions is None else {**offered, **self._versions}
        self.supported_features = {one.name: (one.min_version, one.max_version) for one in answer.supported_features}
        self.finalized_features = {one.name: one.max_version_level for one in answer.finalized_features}
        self.finalized_features_epoch = answer.finalized_features_epoch


@cache
def _software_version() -> str:
    return version_of_package("tidelog")
