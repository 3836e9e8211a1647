"""What the APIs share: the logs, the configuration, the clock, timers, who waits for records. One for each running broker.

Everything in here belongs to the loop's thread.
"""

from __future__ import annotations

from tidelog.broker.api import Api
from tidelog.broker.delays import Delays
from tidelog.broker.fetch.delayed_fetches import DelayedFetches
from tidelog.broker.fetch.fetch_reader import FetchReader
from tidelog.broker.fetch.fetch_sessions import FetchSessions
from tidelog.broker.flushes import Flushes
from tidelog.broker.groups.groups import Groups
from tidelog.broker.leadership import Leadership, SingleLeadership
from tidelog.broker.metrics import Metrics
from tidelog.broker.server.listeners import Listener
from tidelog.broker.server.slices import Slices
from tidelog.broker.server.unsent_bytes import UnsentBytes
from tidelog.broker.server.wide_requests import WideRequests
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.broker.settings.config_entries import ConfigEntries
from tidelog.broker.settings.dynamic_settings import DynamicSettings
from tidelog.broker.timers import Blocking, Timers
from tidelog.broker.topic_changes import TopicChanges
from tidelog.broker.topics import Topics
from tidelog.broker.transactions.transactions import Transactions
from tidelog.clock import Clock
from tidelog.model import TopicPartition
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition.partition_log import PartitionLog


class Node:
    """What all APIs share. Made by `running` once the folder is open; everything in it belongs to the loop's thread."""

    def __init__(
        self,
        manager: LogManager,
        config: BrokerConfig,
        clock: Clock,
        timers: Timers,
        blocking: Blocking,
        heavy: Blocking | None = None,
    ) -> None:
        """`heavy` is for what keeps a processor busy, so that nobody who waits for a disk waits for that; None: `blocking`."""
        self.manager = manager
        self.node_id = manager.owner.node_id
        self.cluster_id = manager.owner.cluster_id
        self.config = config
        """What the broker was started with, but for `dynamic_settings`."""
        self.clock = clock
        self.timers = timers
        self.blocking = blocking
        self.heavy = heavy or blocking
        self.wide_requests = WideRequests()
        self.unsent = UnsentBytes()
        self.slices = Slices(timers, blocking, self.heavy)
        self.delays = Delays(timers, clock)
        self.delayed_fetches = DelayedFetches(timers)
        self.fetch_sessions = FetchSessions(clock, config.max_incremental_fetch_session_cache_slots)
        self.flushes = Flushes(manager)
        self.leadership: Leadership = SingleLeadership(manager, self.delayed_fetches.appended, self.flushes.appended)
        self.fetch_reader = FetchReader(manager, self.leadership)
        self.topics = Topics(self)
        self.topic_changes = TopicChanges(self)
        self.dynamic_settings = DynamicSettings(self)
        self.configs = ConfigEntries(self)
        self.metrics = Metrics()
        self.groups = Groups(self)
        self.transactions = Transactions(self)
        manager.offline.returned = self._returned
        self.apis: tuple[Api, ...] = ()
        """What is served, told by `dispatch`."""
        self.listeners: tuple[Listener, ...] = config.listeners
        """Where it listens, with the ports that were found once it does."""

    def _returned(self, log: PartitionLog, has_lost: bool) -> None:
        self.leadership.on_return(log, has_lost)
        self.groups.log.on_return(log)
        self.transactions.on_return(log)

    def endpoint_of(self, broker_id: int, listener: Listener) -> tuple[str, int, str | None] | None:
        """Return the host, the port and the rack of a broker for clients of a listener; None where they are not known."""
        if broker_id == self.node_id:
            return listener.advertised_host, listener.advertised_port, self.config.broker_rack
        return None

    def leader_epoch(self, key: TopicPartition) -> int:
        """Return the epoch in which this broker leads a partition, -1 if it does not; see `leadership`."""
        return self.leadership.epoch_of(key)
