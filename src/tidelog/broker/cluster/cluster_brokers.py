"""The brokers that the controllers have registered, as the metadata has them (Kafka's KRaftMetadataCache).

| a broker is | when |
|---|---|
| registered | it has said who it is, and was not unregistered since |
| fenced | its heartbeats do not come, or its start or end is under way; then clients do not get it |
| found at a listener | it has one of that name |

What is answered is kept until a registration changes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tidelog.broker.cluster.brokers import NO_BROKER, BrokerView
from tidelog.metadata.directory_ids import is_online

if TYPE_CHECKING:
    from tidelog.broker.cluster.metadata_plane import MetadataPlane
    from tidelog.broker.server.listeners import Listener
    from tidelog.metadata.records import PartitionRecord


class _AtListener:
    """The addresses that a listener's clients get."""

    __slots__ = ("alive", "by_id", "registered")

    def __init__(self, registered: Sequence[BrokerView]) -> None:
        self.registered = registered
        self.alive = [one for one in registered if not one.is_fenced]
        self.by_id = {one.node_id: one for one in registered}


class ClusterBrokers:
    """`Brokers` of a cluster."""

    def __init__(self, plane: MetadataPlane) -> None:
        self._plane = plane
        self._listeners: dict[str, _AtListener] = {}
        self.generation = 0
        """Another number after each change: what was made of the brokers is made again then."""

    def changed(self) -> None:
        """Forget what is kept: registrations are others now."""
        self._listeners.clear()
        self.generation += 1

    # --- Brokers

    def alive(self, listener: Listener) -> Sequence[BrokerView]:
        """Return the brokers that serve clients of a listener, by id."""
        return self._at(listener.name).alive

    def registered(self, listener: Listener) -> Sequence[BrokerView]:
        """Return the same with those that are fenced."""
        return self._at(listener.name).registered

    def find(self, broker_id: int, listener: Listener) -> BrokerView | None:
        """Return one of the brokers that are alive; None if it is not among them."""
        found = self._at(listener.name).by_id.get(broker_id)
        return None if found is None or found.is_fenced else found

    def controller_id(self, listener: Listener) -> int:
        """Return the broker that is the controller, if it is one.

        Else any broker that is alive: clients do not reach controllers, and every broker forwards to them (KIP-590).
        """
        controller = self._plane.controller_id
        if controller is not None:
            return controller if self.is_reachable(controller, listener.name) else NO_BROKER
        alive = self.alive(listener)
        return random.choice(alive).node_id if alive else NO_BROKER

    # --- for partitions

    def has_endpoint(self, broker_id: int, listener_name: str) -> bool:
        """Whether a broker is registered with a listener of that name; it may be fenced."""
        return broker_id in self._at(listener_name).by_id

    def is_reachable(self, broker_id: int, listener_name: str) -> bool:
        """Whether a broker is found at a listener, and not fenced."""
        found = self._at(listener_name).by_id.get(broker_id)
        return found is not None and not found.is_fenced

    def offline(self, partition: PartitionRecord, listener_name: str) -> list[int]:
        """Return which of a partition's replicas are offline: their broker is not reachable, or their directory is gone."""
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
