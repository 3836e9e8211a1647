"""The cluster as one of its brokers sees it: a protocol.

`kraft` implements it with the controllers of Apache Kafka, `zookeeper` with the broker that is the controller, and ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tidelog.metadata.image import ConfigKey, MetadataImage
from tidelog.wire.fields import Bytes, Message

ANONYMOUS = ("User", "ANONYMOUS")
"""Type and name of the principal of a client that did not authenticate."""


class ConfigWriter(Protocol):
    """Writes properties of topics and brokers, where brokers do that themselves."""

    async def change(
        self, key: ConfigKey, changed: Callable[[Mapping[str, str]], Mapping[str, str]], timeout_s: float
    ) -> Mapping[str, str]:
        """Give a resource the properties that `changed` makes of those it has, and tell all brokers; return them.

        `changed` may be called again, where another writer came first. Raises what it raises, and BrokerUnreachableError after
        the timeout: then it is unknown whether they were written.
        """


class MetadataPlane(Protocol):
    """The cluster, as this broker knows it. Belongs to the loop's thread."""

    node_id: int

    @property
    def image(self) -> MetadataImage:
        """The committed state, as far as it was applied. Another object once a snapshot was loaded: do not keep it."""

    @property
    def metadata_offset(self) -> int:
        """The metadata is applied up to this offset; 0 if nothing is."""

    @property
    def controller_versions(self) -> Mapping[int, tuple[int, int]] | None:
        """Lowest and highest version of each API that the active controller takes; None while there is no connection to it."""

    @property
    def controller_id(self) -> int | None:
        """The broker that is the controller, -1 if none is; None if no broker is: any of them takes its requests."""

    @property
    def config_writer(self) -> ConfigWriter | None:
        """How this broker changes properties of topics and brokers; None where the controllers do."""

    @property
    def supported_features(self) -> Mapping[str, tuple[int, int]]:
        """Lowest and highest level of the features that this broker announces and supports."""

    @property
    def broker_epoch(self) -> int:
        """The epoch of this broker's registration; -1 before."""

    @property
    def is_fenced(self) -> bool:
        """Whether the controller has fenced this broker: it may not lead, nor be in sync."""

    def is_alive(self, broker_id: int) -> bool:
        """Whether a broker is registered and not fenced."""

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether a broker may be added to an ISR: alive, not shutting down, and registered in that epoch (-1: any)."""

    def endpoint(self, broker_id: int, listener_name: str | None = None) -> tuple[str, int] | None:
        """Return a broker's host and port, of a listener or of the one between brokers; None if unknown or fenced."""

    async def call(self, request: Message, *, timeout_s: float | None = None) -> Any:
        """Send a request to the active controller and return its response; over elections, until the deadline.

        Raises BrokerUnreachableError at the deadline, and what `Channel.call` raises for good. Errors inside of the
        response are the caller's, but for NOT_CONTROLLER at its top.
        """

    async def forward(
        self, frame: Bytes, *, client_host: str, principal: tuple[str, str] = ANONYMOUS, timeout_s: float | None = None
    ) -> bytes:
        """Have the active controller answer a client's request (KIP-590).

        `frame` is the request as it came, its header included, without its size; returned is the response's frame, its
        header included, without its size. Raises as `call`, and BrokerError where the controller refuses to.
        """

    async def producer_ids(self) -> range:
        """Return a block of producer ids that no other broker has (KIP-730). Raises as `call`."""
