"""The broker's interface for fetches: the parts that read, wait and count. The node implements it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tidelog.broker.authorization.faults import Faults
    from tidelog.broker.authorization.permissions import Permissions
    from tidelog.broker.fetch.delayed_fetches import DelayedFetches
    from tidelog.broker.fetch.fetch_reader import FetchReader
    from tidelog.broker.fetch.fetch_sessions import FetchSessions
    from tidelog.broker.loop.metrics import Metrics
    from tidelog.broker.loop.timers import Timers
    from tidelog.broker.net.unsent_bytes import UnsentBytes
    from tidelog.broker.partitions.leadership import Leadership
    from tidelog.broker.quotas.client_quotas import ClientQuotas
    from tidelog.broker.requests.listeners import Listener
    from tidelog.broker.requests.slices import Slices
    from tidelog.broker.settings.broker_config import BrokerConfig
    from tidelog.storage.log_manager import LogManager


class FetchingBroker(Protocol):
    """A broker as `Fetch` sees it."""

    config: BrokerConfig
    delayed_fetches: DelayedFetches
    faults: Faults
    fetch_reader: FetchReader
    fetch_sessions: FetchSessions
    leadership: Leadership
    manager: LogManager
    metrics: Metrics
    permissions: Permissions | None
    quotas: ClientQuotas
    slices: Slices
    timers: Timers
    unsent: UnsentBytes

    def endpoint_of(self, broker_id: int, listener: Listener) -> tuple[str, int, str | None] | None:
        """Return a broker's host, port and rack for clients of a listener; None if unknown."""
