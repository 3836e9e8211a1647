"""The dynamic settings in the metadata log (KIP-226) for all brokers and for this broker.

| resource in the log | settings of |
|---|---|
| broker, empty name | all brokers of the cluster |
| broker, its id | this broker; they take precedence over those of all brokers, and both over the settings at startup |

Settings of the data folder take effect at once: topic defaults, the cleaner's settings, the expiry of producers. The caller
checks settings. A value without effect here is kept, because Kafka may be the folder's next owner.

`log_manager` owns one `BrokerSettings` while it runs. Use it only on the owner's thread.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

from tidelog.config import LogConfig
from tidelog.errors import StorageError, TidelogError
from tidelog.metadata.records import BROKER_RESOURCE, GROUP_RESOURCE
from tidelog.storage.background_work import BackgroundWork
from tidelog.storage.folder.served_settings import ServedSettings, read_served_settings, write_served_settings
from tidelog.storage.manager_config import ManagerConfig
from tidelog.storage.metadata.cluster_metadata import MetadataSource
from tidelog.storage.metadata.topic_records import config_records
from tidelog.storage.partitions import Partitions
from tidelog.storage.scheduler import Rest, Scheduler
from tidelog.storage.steps import Steps
from tidelog.storage.topics.topic_configs import TopicConfigs
from tidelog.storage.topics.topic_settings import stricter_settings

logger = logging.getLogger(__name__)

ALL_BROKERS = ""

TOPICS_A_STEP = 64
"""How many topics get their new defaults before other work runs."""


class BrokerSettings:
    """Dynamic settings of brokers, as in the metadata. `configured` are the settings at startup."""

    def __init__(
        self,
        configured: ManagerConfig,
        store: MetadataSource,
        table: TopicConfigs,
        partitions: Partitions,
        work: BackgroundWork,
        scheduler: Scheduler,
    ) -> None:
        self._configured = configured
        self._store = store
        self._table = table
        self._partitions = partitions
        self._work = work
        self._scheduler = scheduler
        self.config = configured_by_log(configured, store)

    def of(self, name: str) -> Mapping[str, str]:
        """Return the settings that were set for one broker (`name` is its id) or for all brokers (`ALL_BROKERS`)."""
        return self._store.image.configs.get((BROKER_RESOURCE, name), {})

    def all(self) -> dict[str, str]:
        """Return the effective settings of this broker."""
        return self._store.image.broker_config(self._store.node_id)

    def note_served(self, directory: Path, now_ms: int) -> None:
        """Store the current topic defaults in the folder, and log a warning if they retain less than the previous broker's
        defaults. An error is only logged.
        """
        now = ServedSettings.of(now_ms, self._store.image.broker_epoch(self._store.node_id), self._configured.topic_defaults)
        before = None
        try:
            before = read_served_settings(directory)
            if before is not None:
                _warn_of_stricter(directory, before.properties, now.properties)
        except TidelogError as error:
            logger.warning("%s", error)
        if before is not None and before._replace(time_ms=now_ms) == now:
            # Only the time is new: the start need not wait for the disk.
            self._scheduler.schedule("served-settings", lambda: Rest(partial(_save, directory, now)))
        else:
            _save(directory, now)

    def change(self, name: str, settings: Mapping[str, str]) -> Steps[None]:
        """Replace the settings of one broker (`name` is its id) or of all brokers (`ALL_BROKERS`).

        Raises StorageError, InvalidArgumentError if only controllers may change settings.
        """
        try:
            yield self._store.append(config_records(BROKER_RESOURCE, name, self.of(name), settings))
        except StorageError:
            yield from self.take_over()  # Another change may have applied settings that were reverted.
            raise
        yield from self.take_over()

    def change_group(self, group_id: str, settings: Mapping[str, str]) -> Steps[None]:
        """Replace the settings of a consumer group. Raises what `change` raises."""
        before = self._store.image.configs.get((GROUP_RESOURCE, group_id), {})
        yield self._store.append(config_records(GROUP_RESOURCE, group_id, before, settings))

    def take_over(self, topics: Iterable[str] | None = None) -> Steps[None]:
        """Apply changed settings of `topics`; None applies changed settings of the broker, which affect all topics."""
        if topics is None:
            self.config = configured_by_log(self._configured, self._store)
            self._partitions.loader.producer_id_expiration_ms = self.config.producer_id_expiration_ms
            self._work.reconfigure(self.config)
            self._table.reconfigure(self.config)
        for number, name in enumerate(self._partitions.topics() if topics is None else topics, start=1):
            self._table.forget(name)
            keys = self._partitions.keys_of(name)
            if not keys:
                continue
            self._table.configure_logs(name)
            if not self._table.config_of(name).is_compacted:
                self._work.stop_cleaning(keys)
            for key in keys:
                log = self._partitions.logs.get(key)
                if log is not None:
                    log.producer_state.producer_id_expiration_ms = self.config.producer_id_expiration_ms
            if number % TOPICS_A_STEP == 0:
                yield None


def _save(directory: Path, settings: ServedSettings) -> None:
    try:
        write_served_settings(directory, settings)
    except StorageError as error:
        logger.warning("cannot save the broker's settings in the data folder: %s", error)


def configured_by_log(configured: ManagerConfig, store: MetadataSource) -> ManagerConfig:
    """Return a folder's configuration with the dynamic settings of its metadata."""
    return configured.with_dynamic(store.image.broker_config(store.node_id))


def _warn_of_stricter(directory: Path, before: Mapping[str, str], given: Mapping[str, str]) -> None:
    was, now = LogConfig.from_properties(before), LogConfig.from_properties(given)
    was_told, now_told = was.to_properties(), now.to_properties()
    for name in stricter_settings(was, now):
        logger.warning(
            "%s: %s is %s now, and was %s when the folder was last served: topics that do not set it retain less",
            *(directory, name, now_told[name], was_told[name]),
        )
