"""A request on its way, and what a handler can return instead of its response."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from tidelog.broker.server.listeners import Listener
    from tidelog.security.principal import Principal
    from tidelog.wire.codec import Message


class Outcome(enum.Enum):
    """A handler's result if it has no response, or none yet."""

    LATER = enum.auto()
    NOTHING = enum.auto()
    CLOSE = enum.auto()


class Wide(NamedTuple):
    """A response whose bytes take more than a few milliseconds to be made, or of which others have parts."""

    response: Message
    is_shared: bool = False
    """Whether others have parts of it: what is below its first arrays is not taken apart, however long its making took."""
    is_long: bool = True
    """Whether another thread makes its bytes, even where the work was done in one go."""


class Request(Protocol):
    """A request on its way, as a handler sees it: where it came from, and the way back."""

    api_version: int
    correlation_id: int
    client_id: str | None
    connection_id: int
    """A number of the connection's own, never used twice."""
    peer_host: str
    listener: Listener
    """Where it came in: metadata names the address that is advertised there."""
    principal: Principal
    """The authenticated principal; ANONYMOUS if no authentication is required. Authorization uses it."""
    request_bytes: int
    """How large it is, header included."""
    started_ns: int
    """When it began, by `perf_counter_ns`."""
    busy_ns: int
    """How long it has kept the loop busy, if it is answered later and that counts (`quotas.client_quotas`)."""

    @property
    def is_waiting(self) -> bool:
        """Whether it is answered later."""

    def mute(self, throttle_ms: int) -> None:
        """Read nothing more of its connection for a while; the answer is still sent."""

    @property
    def api_name(self) -> str:
        """Kafka's name of what is asked for."""

    def respond(self, response: Message | Wide | Outcome, *, is_wide: bool = False) -> None:
        """Send a response that was put off. Once; nothing happens if the connection is gone.

        Outcome.NOTHING lets the connection continue without one, Outcome.CLOSE closes it, Outcome.LATER changes nothing.
        """

    def when_gone(self, callback: Callable[[], None]) -> None:
        """Have `callback` called if the connection is lost before the response.

        Nothing is lost with such a request: a broker that stops drops it without waiting for its end.
        """


Answer: TypeAlias = "Message | Wide | Outcome"
