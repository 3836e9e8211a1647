"""What all parts of a broker use: logs, configuration, clock, timers, threads. Each running broker has one `Core`.

`Core` does not depend on the parts that use it. `Node` extends it and creates them. Use everything here only on the event loop's
thread.
"""

from __future__ import annotations

from functools import partial

from tidelog.broker.fetch.delayed_fetches import DelayedFetches
from tidelog.broker.loop.delays import Delays
from tidelog.broker.loop.metrics import Metrics
from tidelog.broker.loop.timers import Blocking, Timers
from tidelog.broker.partitions.flushes import Flushes
from tidelog.broker.peers.broker_channels import BrokerChannels
from tidelog.broker.peers.channel import Channel
from tidelog.broker.peers.metadata_plane import MetadataPlane
from tidelog.broker.requests.listeners import Listener
from tidelog.broker.requests.slices import Slices
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.broker.settings.cluster_config import ClusterConfig
from tidelog.broker.settings.dynamic_settings import DynamicSettings
from tidelog.clock import Clock
from tidelog.security.access import Access
from tidelog.storage.log_manager import LogManager


class Core:
    """The services that every part of a broker can use."""

    def __init__(
        self,
        manager: LogManager,
        config: BrokerConfig,
        clock: Clock,
        timers: Timers,
        blocking: Blocking,
        heavy: Blocking | None = None,
        plane: MetadataPlane | None = None,
    ) -> None:
        """`heavy` runs CPU-heavy work on a separate thread, so that disk work never queues behind it; None means `blocking`.

        `plane` connects a member to its cluster; None for a standalone broker.
        """
        self.manager = manager
        self.node_id = manager.owner.node_id
        self.cluster_id = manager.owner.cluster_id
        self.config = config
        """The configuration in effect: that of the startup, with later changes by `dynamic_settings`."""
        self.plane = plane
        """A member's connection to its cluster; None for a standalone broker."""
        self.peers = None if plane is None else _peers(plane, config)
        """Requests to the other brokers of the cluster; None for a standalone broker."""
        self.clock = clock
        self.timers = timers
        self.blocking = blocking
        self.heavy = heavy or blocking
        self.slices = Slices(timers, blocking, self.heavy)
        self.delays = Delays(timers, clock)
        self.delayed_fetches = DelayedFetches(timers)
        self.flushes = Flushes(manager)
        self.metrics = Metrics()
        self.listeners: tuple[Listener, ...] = config.listeners
        """The listeners, with the actual ports once the broker listens."""
        self.dynamic_settings = DynamicSettings(manager, config, self._configure)

    def _configure(self, config: BrokerConfig) -> None:
        self.config = config


def _peers(plane: MetadataPlane, config: BrokerConfig) -> BrokerChannels:
    cluster = config.cluster or ClusterConfig(node_id=plane.node_id)
    connect = partial(
        Channel,
        client_id=f"broker-{plane.node_id}-coordinator",
        timeout_s=cluster.request_timeout_ms / 1000,
        connect_timeouts_s=cluster.connect_timeouts_s,
        access=Access(cluster.inter_broker_access),
    )
    return BrokerChannels(plane, connect)
