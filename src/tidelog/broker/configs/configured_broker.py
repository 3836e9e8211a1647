"""What the code that changes settings needs from a broker. `Node` implements this interface."""

from __future__ import annotations

from typing import Protocol

from tidelog.broker.configs.config_entries import ConfigEntries
from tidelog.broker.peers.forwarding import Forwarding
from tidelog.broker.peers.metadata_plane import MetadataPlane
from tidelog.broker.settings.broker_config import BrokerConfig
from tidelog.broker.settings.dynamic_settings import DynamicSettings
from tidelog.broker.topics.topic_changes import TopicChanges
from tidelog.broker.topics.topics import Topics
from tidelog.metadata.image import MetadataImage
from tidelog.storage.log_manager import LogManager


class ConfiguredBroker(Protocol):
    """A broker, as the code that changes settings uses it."""

    config: BrokerConfig
    configs: ConfigEntries
    dynamic_settings: DynamicSettings
    forwarding: Forwarding | None
    manager: LogManager
    node_id: int
    plane: MetadataPlane | None
    topic_changes: TopicChanges
    topics: Topics

    def has_settings_of(self, broker_id: int) -> bool:
        """Whether this node can change the settings of the broker with this id."""

    @property
    def image(self) -> MetadataImage:
        """The current metadata image."""
