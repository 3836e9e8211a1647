"""Sends requests to the controller, which is one of the brokers: this broker's own requests, and clients' requests unchanged.

In a ZooKeeper cluster, a Kafka broker answers NOT_CONTROLLER to a request for the controller, and the client finds the controller
through Metadata. This broker's Metadata names the controller, too, but a client that sends such a request here still gets the
controller's response.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from tidelog.broker.peers.channel import Channel
from tidelog.errors import BrokerUnreachableError, UnsupportedVersionError
from tidelog.wire.codec import decoder
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import REQUESTS, Bytes, Message
from tidelog.wire.headers import read_request_header, response_chunks

logger = logging.getLogger("tidelog.broker")

RETRY_S = 0.1

Where = Callable[[], tuple[str, int] | None]


class ControllerLink:
    """A channel to the current controller. `where` returns the controller's address on the inter-broker listener, or None if
    there is no controller. `connect` returns a channel to an address, and `timeout_s` bounds each request.
    """

    def __init__(self, where: Where, connect: Callable[..., Channel], timeout_s: float) -> None:
        self._where = where
        self._connect = connect
        self._timeout_s = timeout_s
        self._channel: Channel | None = None
        self._is_closed = False

    @property
    def offered(self) -> Mapping[int, tuple[int, int]] | None:
        """The versions that the controller supports; None before the first connection."""
        return None if self._channel is None else self._channel.offered

    async def call(
        self, request: Message, *, version: int | None = None, at_most: int | None = None, timeout_s: float | None = None
    ) -> Any:
        """Send a request and return its response. If the controller changes, the request is sent again to the new one, until the
        deadline.

        If `version` is None, use the highest version that both sides know, up to `at_most`. Raises BrokerUnreachableError at
        the deadline, and any error of `Channel.call` that a retry cannot fix.
        """
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        reason = "no controller"
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    channel = self._to()
                    if channel is not None:
                        try:
                            if at_most is not None:
                                await channel.connect()
                                version = min(channel.version_of(type(request)), at_most)
                            answer = await channel.call(request, version=version)
                        except BrokerUnreachableError as error:
                            reason = str(error)
                        else:
                            if getattr(answer, "error_code", 0) != ErrorCode.NOT_CONTROLLER:
                                return answer
                            reason = f"{channel.place} is no longer the controller"
                    await asyncio.sleep(RETRY_S)
        except TimeoutError:
            raise BrokerUnreachableError(f"the controller did not answer in time: {reason}", path="controller") from None

    async def forward(self, frame: Bytes, timeout_s: float | None) -> bytes:
        header, position = read_request_header(frame)
        request = REQUESTS.get(header.api_key)
        if request is None:
            raise UnsupportedVersionError("a request with an unknown API key cannot be forwarded", found=header.api_key)
        message = decoder(request, header.api_version, exact=False)(frame, position)
        answer = await self.call(message, version=header.api_version, timeout_s=timeout_s)
        return b"".join(response_chunks(answer, header.api_version, header.correlation_id))[4:]

    def close(self) -> None:
        """Close the channel for good. Idempotent."""
        self._is_closed = True
        if self._channel is not None:
            self._channel.close()

    def _to(self) -> Channel | None:
        where = self._where()
        channel = self._channel
        if channel is not None and (channel.host, channel.port) != where:
            channel.close()
            self._channel = channel = None
        if channel is None and where is not None and not self._is_closed:
            self._channel = channel = self._connect(*where)
        return channel
