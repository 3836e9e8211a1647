"""Channels to controllers, by address. Long requests (Fetch) and others use separate channels, so neither blocks the other."""

from __future__ import annotations

from tidelog.broker.cluster.kraft.quorum import Address
from tidelog.broker.peers.channel import Channel
from tidelog.security.access import Access


class Channels:
    """Channels to controllers, created on first use. Use only on the event loop's thread."""

    def __init__(
        self, client_id: str, timeout_s: float, connect_timeouts_s: tuple[float, float], access: Access | None = None
    ) -> None:
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._connect_timeouts_s = connect_timeouts_s
        self._access = access
        self._channels: dict[Address, Channel] = {}
        self._is_closed = False

    def to(self, address: Address) -> Channel:
        channel = self._channels.get(address)
        if channel is None:
            channel = self._channels[address] = Channel(
                *address,
                client_id=self._client_id,
                timeout_s=self._timeout_s,
                connect_timeouts_s=self._connect_timeouts_s,
                access=self._access,
            )
            if self._is_closed:
                channel.close()
        return channel

    def close(self) -> None:
        """Close all channels for good. Idempotent."""
        self._is_closed = True
        for channel in self._channels.values():
            channel.close()
