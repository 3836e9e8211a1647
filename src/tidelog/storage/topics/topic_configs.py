"""The configurations of a data folder's logs: the topic's own settings, completed by the broker's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from tidelog.config import LogConfig, PropertyValue
from tidelog.errors import StorageError
from tidelog.storage.manager_config import ManagerConfig
from tidelog.storage.partitions import Partitions

logger = logging.getLogger("tidelog.storage")

KEEP_EVERYTHING: dict[str, PropertyValue] = {"cleanup.policy": "delete", "retention.ms": -1, "retention.bytes": -1}
"""The settings of a topic whose configuration is unknown, in addition to the folder's defaults."""


class TopicConfigs:
    """The configuration of each topic's logs. `properties_of` returns a topic's own settings, or None for an unknown topic."""

    def __init__(
        self, config: ManagerConfig, partitions: Partitions, properties_of: Callable[[str], Mapping[str, str] | None]
    ) -> None:
        self.config = config
        self._partitions = partitions
        self._properties_of = properties_of
        self._configs: dict[str, LogConfig] = {}

    def config_of(self, name: str) -> LogConfig:
        """Return the configuration of a topic's logs."""
        config = self._configs.get(name)
        if config is None:
            properties = self._properties_of(name)
            config = self._configs[name] = self.config.topic_config(KEEP_EVERYTHING if properties is None else properties)
        return config

    def forget(self, name: str) -> None:
        """Drop a topic's cached settings, because they have changed. `configure_logs` applies the new settings to the
        topic's logs.
        """
        self._configs.pop(name, None)

    def reconfigure(self, config: ManagerConfig) -> None:
        """Change the default settings of topics. `configure_logs` applies the new settings to the logs."""
        self.config = config
        self._configs.clear()

    def configure_logs(self, name: str) -> None:
        """Apply the configuration to a topic's logs. A log that cannot apply the configuration goes offline, and the
        error is logged.
        """
        for key in self._partitions.keys_of(name):
            log = self._partitions.logs.get(key)
            if log is not None:
                try:
                    log.update_config(self.config_of(name))
                except StorageError as error:
                    logger.error("%s: %s", log.directory, error)
