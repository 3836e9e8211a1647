"""The brokers registered with the controllers, taken from the cluster metadata (like Kafka's KRaftMetadataCache).

| a broker is | when |
|---|---|
| registered | it has registered and has not been unregistered since |
| fenced | its heartbeats are missing, or it is starting or shutting down; clients do not see it |
| found at a listener | it has a listener of that name |

Results are cached until a registration changes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from tidelog.broker.peers.brokers import NO_BROKER, BrokerView
from tidelog.broker.peers.metadata_plane import MetadataPlane
from tidelog.broker.requests.listeners import Listener
from tidelog.metadata.directory_ids import is_online
from tidelog.metadata.records import PartitionRecord


class _AtListener:
    """The brokers' addresses for the clients of one listener."""

    __slots__ = ("alive", "by_id", "registered")

    def __init__(self, registered: Sequence[BrokerView]) -> None:
        self.registered = registered
        self.alive = [one for one in registered if not one.is_fenced]
        self.by_id = {one.node_id: one for one in registered}


class ClusterBrokers:
    """Implements `Brokers` for a cluster member."""

    def __init__(self, plane: MetadataPlane) -> None:
        self._plane = plane
        self._listeners: dict[str, _AtListener] = {}
        self.generation = 0
        """Changes whenever a registration changes; callers use it to invalidate values derived from the brokers."""

    def changed(self) -> None:
        """Drop the cached results, because a registration has changed."""
        self._listeners.clear()
        self.generation += 1

    # --- Brokers

    def alive(self, listener: Listener) -> Sequence[BrokerView]:
        return self._at(listener.name).alive

    def registered(self, listener: Listener) -> Sequence[BrokerView]:
        return self._at(listener.name).registered

    def find(self, broker_id: int, listener: Listener) -> BrokerView | None:
        found = self._at(listener.name).by_id.get(broker_id)
        return None if found is None or found.is_fenced else found

    def controller_id(self, listener: Listener) -> int:
        """In a ZooKeeper cluster, return the controller's id, or NO_BROKER if the controller cannot be reached at the listener.

        In a KRaft cluster, return the id of any live broker, or NO_BROKER if there is none: clients cannot reach the
        controllers, and every broker forwards requests to them (KIP-590).
        """
        controller = self._plane.controller_id
        if controller is not None:
            return controller if self.is_reachable(controller, listener.name) else NO_BROKER
        alive = self.alive(listener)
        return random.choice(alive).node_id if alive else NO_BROKER

    # --- for partitions

    def has_endpoint(self, broker_id: int, listener_name: str) -> bool:
        """Whether a broker, fenced or not, is registered with a listener of that name."""
        return broker_id in self._at(listener_name).by_id

    def is_reachable(self, broker_id: int, listener_name: str) -> bool:
        """Whether a broker has the listener and is not fenced."""
        found = self._at(listener_name).by_id.get(broker_id)
        return found is not None and not found.is_fenced

    def offline(self, partition: PartitionRecord, listener_name: str) -> list[int]:
        """Return the offline replicas of a partition: their broker is fenced or lacks the listener, or their directory is
        offline.
        """
        return [
            broker_id
            for index, broker_id in enumerate(partition.replicas)
            if not self.is_reachable(broker_id, listener_name) or not self._has_directory(partition, index)
        ]

    def _has_directory(self, partition: PartitionRecord, index: int) -> bool:
        registered = self._plane.image.brokers[partition.replicas[index]].log_dirs
        return index >= len(partition.directories) or is_online(partition.directories[index], registered)

    def _at(self, listener_name: str) -> _AtListener:
        found = self._listeners.get(listener_name)
        if found is None:
            found = self._listeners[listener_name] = _AtListener(
                [
                    BrokerView(broker_id, one.host, one.port, broker.rack, broker.fenced)
                    for broker_id, broker in sorted(self._plane.image.brokers.items())
                    for one in broker.end_points
                    if one.name == listener_name
                ]
            )
        return found
