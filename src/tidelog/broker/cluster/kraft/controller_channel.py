"""Sends requests to the active controller, and retries them across elections and restarts until a deadline (Kafka's
NodeToControllerChannelManager).

`metadata_fetcher` finds the leader of the quorum. A request that gets no response, or NOT_CONTROLLER, is sent again to the same
or another controller. A request may therefore be executed twice.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from tidelog.broker.cluster.kraft.quorum import Address, Quorum
from tidelog.broker.peers.channel import Channel
from tidelog.errors import BrokerUnreachableError, ProtocolError, TidelogError
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Message

logger = logging.getLogger("tidelog.broker")

RETRY_S = 0.05
MAX_RETRY_S = 0.5
"""Seconds between two attempts: the first wait, doubled each time, and the longest."""


class ControllerChannel:
    """Sends requests to the active controller. Use only on the event loop's thread."""

    def __init__(self, quorum: Quorum, channels: Channels, timeout_s: float) -> None:
        self._quorum = quorum
        self._channels = channels
        self._timeout_s = timeout_s

    @property
    def offered(self) -> Mapping[int, tuple[int, int]] | None:
        """Return the versions that the active controller supports (see `Channel.offered`), or None while the controller is
        unknown or this broker has not connected to it yet.
        """
        leader = self._quorum.leader
        return None if leader is None else self._channels.to(leader).offered

    async def call(self, request: Message, *, timeout_s: float | None = None) -> Any:
        """Send a request and return its response. NOT_CONTROLLER at the top level of the response is retried.

        Raises BrokerUnreachableError at the deadline, and SecurityProtocolError or UnsupportedVersionError at once.
        """
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        wait_s, reason = RETRY_S, "no controller leads"
        try:
            async with asyncio.timeout_at(deadline):
                while True:
                    leader = await self._quorum.wait_for_leader()
                    try:
                        response = await self._asked(leader, request, deadline - loop.time())
                    except (BrokerUnreachableError, ProtocolError) as error:
                        reason = str(error)
                    else:
                        if response is not None and getattr(response, "error_code", 0) != ErrorCode.NOT_CONTROLLER:
                            return response
                        reason = f"{leader} is not the active controller"
                    await asyncio.sleep(wait_s)
                    wait_s = min(2 * wait_s, MAX_RETRY_S)
        except TimeoutError:
            message = f"the active controller did not answer {request.API_NAME} within {timeout_s:.3g} s: {reason}"
            raise BrokerUnreachableError(message, path=str(self._quorum)) from None

    async def _asked(self, leader: Address, request: Message, timeout_s: float) -> Any:
        """Return the leader's response, or None if the leader changes first."""
        asking = asyncio.ensure_future(self._channels.to(leader).call(request, timeout_s=timeout_s))
        another = asyncio.ensure_future(self._quorum.wait_for_leader(other_than=leader))
        try:
            await asyncio.wait({asking, another}, return_when=asyncio.FIRST_COMPLETED)
            return asking.result() if asking.done() else None
        finally:
            asking.cancel()
            another.cancel()

    async def connected(self, timeout_s: float | None = None) -> Channel:
        """Return a connected channel to the active controller, with its API versions and features. Raises what `call` raises."""
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        reason: TidelogError | str = "no controller leads"
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    channel = self._channels.to(await self._quorum.wait_for_leader())
                    try:
                        await channel.connect()
                        return channel
                    except (BrokerUnreachableError, ProtocolError) as error:
                        reason = error
                    await asyncio.sleep(RETRY_S)
        except TimeoutError:
            message = f"could not connect to the active controller within {timeout_s:.3g} s: {reason}"
            raise BrokerUnreachableError(message, path=str(self._quorum)) from None

    def close(self) -> None:
        """Close all connections. Idempotent."""
        self._channels.close()


class Channels:
    """Channels to controllers, created on first use by `connect`. Long requests (Fetch) and others have separate ones, so neither
    blocks the other. Use only on the event loop's thread.
    """

    def __init__(self, connect: Callable[..., Channel]) -> None:
        self._connect = connect
        self._channels: dict[Address, Channel] = {}
        self._is_closed = False

    def to(self, address: Address) -> Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = self._connect(*address)
            if self._is_closed:
                channel.close()
        return channel

    def close(self) -> None:
        """Close all channels for good. Idempotent."""
        self._is_closed = True
        for channel in self._channels.values():
            channel.close()
