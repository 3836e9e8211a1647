"""A running broker as its APIs see it: the core and all parts.

The parts do not depend on the node; each is given the core and the parts that it uses. Use everything here only on the event
loop's thread.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping

from tidelog.broker.authorization.faults import Faults
from tidelog.broker.authorization.permissions import Permissions
from tidelog.broker.configs.config_entries import ConfigEntries
from tidelog.broker.coordinators.groups.groups import Groups, offsets_topic
from tidelog.broker.coordinators.state_log import InternalTopic, StateLog
from tidelog.broker.coordinators.transactions.markers import Markers
from tidelog.broker.coordinators.transactions.producer_id_source import ClusterProducerIds, ProducerIdSource
from tidelog.broker.coordinators.transactions.transactions import Transactions, transactions_topic
from tidelog.broker.core import Core
from tidelog.broker.fetch.fetch_reader import FetchReader
from tidelog.broker.fetch.fetch_sessions import FetchSessions
from tidelog.broker.loop.timers import Blocking, Timers
from tidelog.broker.net.unsent_bytes import UnsentBytes
from tidelog.broker.partitions.leadership import Leadership, SingleLeadership
from tidelog.broker.peers.brokers import Brokers, SingleBroker
from tidelog.broker.peers.cluster_brokers import ClusterBrokers
from tidelog.broker.peers.forwarding import Forwarding
from tidelog.broker.peers.metadata_plane import MetadataPlane
from tidelog.broker.quotas.client_quotas import ClientQuotas
from tidelog.broker.replicas.cluster_leadership import ClusterLeadership
from tidelog.broker.replicas.fetchers import Fetchers
from tidelog.broker.replicas.replicas import Replicas
from tidelog.broker.replicas.replication_quota import ReplicationQuota
from tidelog.broker.requests.listeners import Listener
from tidelog.broker.requests.wide_requests import WideRequests
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.broker.settings.cluster_config import ReplicaSelector
from tidelog.broker.settings.dynamic_settings import LEADER_RATE
from tidelog.broker.topics.cluster_topics import ClusterTopics
from tidelog.broker.topics.topic_changes import TopicChanges
from tidelog.broker.topics.topic_creation import TopicCreation
from tidelog.broker.topics.topics import Topics
from tidelog.clock import Clock
from tidelog.metadata.delta import MetadataDelta
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.records import BROKER_RESOURCE
from tidelog.model import TopicPartition
from tidelog.storage.log_manager import LogManager
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.wire.fields import Versions
from tidelog.wire.messages.create_topics import CreatableTopic
from tidelog.wire.messages.describe_quorum import ReplicaState


class Node(Core):
    """State shared by all APIs. `serving_broker` creates it once the folder is open. Use it only on the event loop's thread."""

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
        super().__init__(manager, config, clock, timers, blocking, heavy, plane)
        self.wide_requests = WideRequests()
        self.unsent = UnsentBytes()
        self.quotas = ClientQuotas(config, self.delays.now_ms)
        self.slices.counts_time = lambda: self.quotas.counts_time
        self.fetch_sessions = FetchSessions(clock, config.max_incremental_fetch_session_cache_slots)
        self.fetchers: Fetchers | None = None
        self.replicas: Replicas | None = None
        """The replicas of a cluster member; None for a standalone broker."""
        self.leadership: Leadership = self._leadership(manager, plane)
        self.fetch_reader = FetchReader(manager, self.leadership)
        self.topic_changes = TopicChanges(self)
        self.brokers: Brokers
        self.topics: Topics
        self.topic_creation: TopicCreation | None = None
        """Requests topics from the controller when clients use them first; None if this broker creates topics itself."""
        self.forwarding: Forwarding | None = None
        """Forwards clients' requests to the controllers; None if this broker answers them itself."""
        if plane is None:
            self.brokers = SingleBroker(self.node_id, config.broker_rack)
            self.topics = Topics(self, self.leadership, self.topic_changes)
        else:
            self.brokers = brokers = ClusterBrokers(plane)
            self.topics = ClusterTopics(plane, brokers)
            self.forwarding = Forwarding(plane, self.heavy)
            self.topic_creation = TopicCreation(plane, self._creatable)
        self.permissions = Permissions.of(config, self.image)
        """The authorizer; None if no authorizer is configured, so that everything is allowed."""
        self.configs = ConfigEntries(self)
        self.producer_ids: ProducerIdSource = manager.producer_ids if plane is None else ClusterProducerIds(plane)
        self.groups = Groups(self, self._state_log(offsets_topic(config)), self.topics)
        self.markers = Markers(self, self.leadership, self.groups)
        log = self._state_log(transactions_topic(config))
        self.transactions = Transactions(self, log, self.markers, self.producer_ids)
        self._have_coordinators_follow()
        manager.offline.returned = self._returned
        self.quotas.take_over(self.image.quotas)
        self.served: Mapping[int, Versions] = {}
        """The versions of the APIs that this broker answers itself, by API key."""
        self.faults = Faults()
        """Faults injected by tests of clients."""

    def quorum_observers(self) -> list[ReplicaState]:
        """Return the brokers that read this node's metadata log; an empty list for a standalone broker."""
        return []

    def _leadership(self, manager: LogManager, plane: MetadataPlane | None) -> Leadership:
        wake_fetches, when_flushed = self.delayed_fetches.appended, self.flushes.appended
        cluster = self.config.cluster
        if plane is None or cluster is None:
            return SingleLeadership(manager, wake_fetches, when_flushed)
        self.fetchers = Fetchers(self, plane)
        self.replicas = Replicas(self, plane, self.fetchers)
        has_selector = cluster.replica_selector is ReplicaSelector.RACK_AWARE
        quota = ReplicationQuota.of(cluster, lambda: self.dynamic_settings.throttled_rate(LEADER_RATE))
        return ClusterLeadership(self.replicas, wake_fetches, when_flushed, quota=quota, has_selector=has_selector)

    def _state_log(self, wanted: InternalTopic) -> StateLog:
        return StateLog(self, self.leadership, self.topics, self.topic_changes, self.topic_creation, wanted)

    def _have_coordinators_follow(self) -> None:
        self.topics.on_deleted += [self.groups.topic_deleted, self.transactions.topic_deleted]
        if self.replicas is not None:
            for log in (self.groups.log, self.transactions.log):
                self.replicas.on_leading.append(log.lead)
                self.replicas.on_not_leading.append(log.resign)

    def _returned(self, log: PartitionLog, has_lost: bool) -> None:
        self.leadership.on_return(log, has_lost)
        self.groups.log.on_return(log)
        self.transactions.on_return(log)

    def _creatable(self, name: str) -> CreatableTopic:
        for log in (self.groups.log, self.transactions.log):
            if name == log.topic:
                return log.wanted.creatable
        return CreatableTopic(name, self.config.num_partitions, self.config.default_replication_factor)

    def metadata_changed(self, delta: MetadataDelta) -> Generator[None, None, None]:
        """Apply changes of the cluster's metadata to what clients see. Called on cluster members only.

        Returns the rest of the work, in steps, to be run before the next change: groups and transactions forget deleted topics.
        """
        assert isinstance(self.topics, ClusterTopics)
        self.topics.changed(delta)
        if delta.quotas:
            self.quotas.take_over(self.image.quotas)
        if any(kind == BROKER_RESOURCE for kind, _ in delta.configs):
            self.dynamic_settings.take_over()
        if delta.acls and self.permissions is not None:
            self.permissions.take_over(self.image)
        return self.topics.forget_deleted(delta)

    def has_settings_of(self, broker_id: int) -> bool:
        """Whether this node changes the settings of the broker with this id: a broker changes only its own settings."""
        return broker_id == self.node_id

    @property
    def image(self) -> MetadataImage:
        """The current metadata image: the folder's, or that of the cluster."""
        return self.manager.image if self.plane is None else self.plane.image

    def stop_asking(self) -> None:
        """Give up pending requests to controllers."""
        if self.forwarding is not None and self.topic_creation is not None:
            self.forwarding.stop()
            self.topic_creation.stop()

    def endpoint_of(self, broker_id: int, listener: Listener) -> tuple[str, int, str | None] | None:
        """Return a broker's host, port and rack for clients of a listener; None if unknown."""
        found = self.brokers.find(broker_id, listener)
        return None if found is None else (found.host, found.port, found.rack)

    def leader_epoch(self, key: TopicPartition) -> int:
        """Return the leader epoch in which this broker leads a partition, -1 if it does not lead it; see `leadership`."""
        return self.leadership.epoch_of(key)
