"""Changes a member's replicas in steps: makes the changes of `ReplicaFolders`, and applies their effects on compaction and
settings.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Mapping

from tidelog.errors import LogOfflineError
from tidelog.model import TopicPartition
from tidelog.storage.background_work import BackgroundWork
from tidelog.storage.broker_settings import BrokerSettings
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partitions import Partitions
from tidelog.storage.steps import Steps
from tidelog.storage.topics.replica_folders import ReplicaFolders


class ReplicaSteps:
    """Changes replicas after a metadata change, for a broker that is a cluster member. Make one change at a time: see `steps`."""

    def __init__(self, folders: ReplicaFolders, partitions: Partitions, work: BackgroundWork, settings: BrokerSettings) -> None:
        self._folders = folders
        self._partitions = partitions
        self._work = work
        self._settings = settings

    def creation(self, key: TopicPartition, topic_id: uuid.UUID) -> Steps[PartitionLog]:
        """Return the log of a replica, which is created if necessary. Raises LogOfflineError, with the reason."""
        logs = yield from self.creations({key: topic_id})
        if key not in logs:
            raise LogOfflineError(
                f"the partition is offline: {self._partitions.failed[key]}", path=self._partitions.directory_of(key)
            )
        return logs[key]

    def creations(self, wanted: Mapping[TopicPartition, uuid.UUID]) -> Steps[dict[TopicPartition, PartitionLog]]:
        """Create many replicas, with one sync: see `ReplicaFolders.create`."""
        before = {key: self._partitions.logs.get(key) for key in wanted}
        logs = yield from self._folders.create(wanted)
        # The compaction state of an earlier partition with that name.
        self._work.forget_cleaning([key for key, log in logs.items() if log is not before[key]])
        return logs

    def deletion(self, keys: Collection[TopicPartition]) -> Steps[None]:
        """Delete replicas: see `ReplicaFolders.delete`."""
        try:
            yield from self._folders.delete(keys)
        except GeneratorExit:  # The folder may have a different owner by now, and dropping the compaction state writes a file.
            raise
        except BaseException:
            self._work.forget_cleaning(keys)
            raise
        self._work.forget_cleaning(keys)

    def reconfigure(self, topics: Iterable[str] = (), *, broker: bool = False) -> Steps[None]:
        """Apply the current settings of `topics` in the metadata. If `broker` is True, apply the broker's settings instead, which
        affect all topics.
        """
        return self._settings.take_over(None if broker else topics)
