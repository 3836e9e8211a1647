"""The other brokers of the cluster: which one leads a partition, and requests to it.

Each broker has one channel. It is created on first use, and re-created when the broker's address changes. Use only on the event
loop's thread.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from tidelog.broker.loop.owned_tasks import OwnedTasks
from tidelog.broker.peers.channel import Channel
from tidelog.broker.peers.metadata_plane import MetadataPlane
from tidelog.errors import BrokerUnreachableError
from tidelog.metadata.records import NO_LEADER
from tidelog.model import TopicPartition
from tidelog.wire.fields import Message


class BrokerChannels:
    """Sends requests to other brokers, by their ids. `connect` returns a channel to a host and port."""

    def __init__(self, plane: MetadataPlane, connect: Callable[..., Channel]) -> None:
        self._plane = plane
        self._connect = connect
        self._channels: dict[int, Channel] = {}
        self._tasks = OwnedTasks()
        self._is_closed = False

    def begin(self, work: Coroutine[Any, Any, None], name: str) -> None:
        """Run a coroutine until it is done or this object is closed."""
        self._tasks.begin(work, name)

    def leader_of(self, key: TopicPartition) -> int | None:
        """Return the id of a partition's leader: NO_LEADER while it has none, None if the partition does not exist."""
        partition = self._plane.image.partition(*key)
        return None if partition is None else partition.leader

    async def call(self, broker_id: int, request: Message, version: int | None = None) -> Any:
        """Send a request and return its response. Raises what `Channel.call` raises, and BrokerUnreachableError if the broker
        is unknown or fenced.
        """
        endpoint = None if broker_id == NO_LEADER or self._is_closed else self._plane.endpoint(broker_id)
        if endpoint is None:
            raise BrokerUnreachableError(f"broker {broker_id} has no address: it is unknown or fenced, or this broker stops")
        channel = self._channels.get(broker_id)
        if channel is None or (channel.host, channel.port) != endpoint:
            if channel is not None:
                channel.close()
            channel = self._channels[broker_id] = self._connect(*endpoint)
        return await channel.call(request, version=version)

    def close(self) -> None:
        """Close all channels, for good. Idempotent."""
        self._is_closed = True
        self._tasks.cancel()
        for channel in self._channels.values():
            channel.close()
