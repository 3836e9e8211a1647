"""A request in progress, and the results that a handler can return instead of its response."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import NamedTuple, Protocol, TypeAlias

from tidelog.broker.requests.listeners import Listener
from tidelog.security.principal import Principal
from tidelog.wire.codec import Message


class Outcome(enum.Enum):
    """A handler's result if there is no response, or the response is sent later."""

    LATER = enum.auto()
    NOTHING = enum.auto()
    CLOSE = enum.auto()


class Wide(NamedTuple):
    """A response that takes more than a few milliseconds to encode, or that shares parts with others."""

    response: Message
    is_shared: bool = False
    """Whether other responses share parts of this response. If so, only its first level of arrays is freed in slices."""
    is_long: bool = True
    """Whether another thread encodes the response, even if the handler finished in its first slice."""


class Request(Protocol):
    """A request in progress, as a handler sees it: where it came from, and how to send its response."""

    api_version: int
    correlation_id: int
    client_id: str | None
    connection_id: int
    """The number of the connection. Numbers are never reused."""
    peer_host: str
    listener: Listener
    """The listener that accepted the connection. Metadata returns the addresses advertised for this listener."""
    principal: Principal
    """The authenticated principal, for authorization; ANONYMOUS if no authentication is required."""
    request_bytes: int
    """The request's size in bytes, including the header."""
    started_ns: int
    """When the request began, as a value of `perf_counter_ns`."""
    busy_ns: int
    """How long the request has kept the event loop busy, in ns. Measured only if the request is answered later and a quota
    needs the time (`quotas.client_quotas`).
    """

    @property
    def is_waiting(self) -> bool:
        """Whether the response is pending."""

    def mute(self, throttle_ms: int) -> None:
        """Stop reading from the connection for `throttle_ms`. The response is still sent."""

    @property
    def api_name(self) -> str:
        """The API's name in Kafka."""

    def respond(self, response: Message | Wide | Outcome, *, is_wide: bool = False) -> None:
        """Send a delayed response. Call it once. If the connection is closed, nothing is sent.

        Outcome.NOTHING lets the connection continue without a response, Outcome.CLOSE closes it, Outcome.LATER does nothing.
        """

    def when_gone(self, callback: Callable[[], None]) -> None:
        """Call `callback` if the connection is lost before the response is sent.

        Shutdown does not wait for requests that have a callback, because nothing is lost if they are dropped.
        """


Answer: TypeAlias = "Message | Wide | Outcome"
