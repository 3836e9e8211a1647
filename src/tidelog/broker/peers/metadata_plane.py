"""A Python protocol for what a broker needs from its cluster: the metadata, and requests to the controllers.

`kraft` implements it with Apache Kafka's controllers, `zookeeper` with ZooKeeper and the controller broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tidelog.metadata.image import ConfigKey, MetadataImage
from tidelog.wire.fields import Bytes, Message


class ConfigWriter(Protocol):
    """Writes properties of topics and brokers, in a cluster whose brokers write them (ZooKeeper)."""

    async def change(
        self, key: ConfigKey, changed: Callable[[Mapping[str, str]], Mapping[str, str]], timeout_s: float
    ) -> Mapping[str, str]:
        """Replace a resource's properties: call `changed` with the current ones, write what it returns, and notify all brokers.
        Return the new properties.

        `changed` is called again if another writer came first. Raises what `changed` raises, and BrokerUnreachableError after the
        timeout; it is then unknown whether the properties were written.
        """


class MetadataPlane(Protocol):
    """The cluster's metadata, and requests to the active controller. Use only on the event loop's thread."""

    node_id: int

    @property
    def image(self) -> MetadataImage:
        """The committed metadata that has been applied so far. Loading a snapshot may replace the object, so do not keep a
        reference to it.
        """

    @property
    def metadata_offset(self) -> int:
        """How far the metadata is applied: the offset after the last applied record, 0 before any."""

    @property
    def controller_versions(self) -> Mapping[int, tuple[int, int]] | None:
        """The lowest and highest version of each API that the active controller supports; None before the first
        connection to it.
        """

    @property
    def controller_id(self) -> int | None:
        """The id of the controller broker, -1 if there is none at the moment; None in a KRaft cluster, in which any broker
        forwards requests to the controllers.
        """

    @property
    def config_writer(self) -> ConfigWriter | None:
        """Writes the configs of topics and brokers. None if the controllers write them."""

    @property
    def supported_features(self) -> Mapping[str, tuple[int, int]]:
        """The lowest and highest level of each feature that this broker announces."""

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration; -1 before the broker is registered."""

    @property
    def is_fenced(self) -> bool:
        """Whether the controller has fenced this broker. A fenced broker may not lead or be in an ISR."""

    def is_alive(self, broker_id: int) -> bool:
        """Whether a broker is registered and not fenced."""

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a broker may be added to an ISR: alive, not shutting down, and registered in that epoch (-1: any)."""

    def endpoint(self, broker_id: int, listener_name: str | None = None) -> tuple[str, int] | None:
        """Return a broker's host and port for a listener (default: inter-broker); None if the broker is unknown or fenced."""

    async def call(self, request: Message, *, timeout_s: float | None = None) -> Any:
        """Send a request to the active controller and return its response. During elections the request is retried until the
        deadline.

        Raises BrokerUnreachableError at the deadline, and any error of `Channel.call` that a retry cannot fix. The caller
        handles errors inside the response, except a top-level NOT_CONTROLLER.
        """

    async def forward(
        self, frame: Bytes, *, client_host: str, principal: tuple[str, str], timeout_s: float | None = None
    ) -> bytes:
        """Forward a client's request to the active controller (KIP-590).

        `frame` is the request with its header, without the size; `principal` is a type and a name. Return the response's frame in
        the same form. Raises what `call` raises, and BrokerError if the controller refuses.
        """

    async def producer_ids(self) -> range:
        """Allocate a block of producer ids for this broker (KIP-730). Raises what `call` raises, and BrokerError if the
        controller refuses.
        """
