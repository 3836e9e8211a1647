"""The data folder of a cluster member: the controllers decide which replicas are in it (KIP-500, KIP-631).

::

    manager = MemberLogManager(directory, clock, properties={"node.id": 4})
    manager.open()             # reads owner and previous_broker_epoch, for the registration
    manager.startup(plane)     # once the broker has caught up with the metadata (plane.image): the logs are loaded
    run_steps(manager.replicas.creations({key: topic_id}))

It differs from `LogManager`:

- The folder was formatted, by Kafka's storage tool or `tidelog format`. Nothing is written to ``__cluster_metadata-0``: the copy
  of the controllers' log is the broker's.
- Partition folders that belong to no replica of this node are set aside (`topics.replica_folders`).
- High watermarks come from ``replication-offset-checkpoint``, never from the log ends, which other replicas may not have.
- Topics and settings change only in the metadata; `replicas` applies changes to folders and logs. Controllers assign producer
  ids.
- Interrupted imports are not finished: the other replicas would not have the records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from tidelog.errors import InvalidArgumentError
from tidelog.formats.dir_lock import DirLock
from tidelog.storage.folder import data_folder
from tidelog.storage.folder.clean_shutdown import NO_BROKER_EPOCH, read_broker_epoch
from tidelog.storage.folder.meta_properties import MetaProperties
from tidelog.storage.folder.write_journal import is_pending
from tidelog.storage.log_manager import LogManager
from tidelog.storage.metadata.cluster_metadata import ClusterMetadata, HasImage
from tidelog.storage.topics.replica_folders import ReplicaFolders
from tidelog.storage.topics.replica_steps import ReplicaSteps

logger = logging.getLogger("tidelog.storage")


class MemberLogManager(LogManager):
    """Manages the folder of a cluster member."""

    previous_broker_epoch: int = NO_BROKER_EPOCH
    """The broker's epoch at the last clean shutdown, for the registration (KIP-966)."""
    broker_epoch: int = NO_BROKER_EPOCH
    """The broker's current epoch, which a clean shutdown stores."""
    _owner: MetaProperties | None = None
    _folders: ReplicaFolders | None = None

    def open(self) -> None:
        """Lock the folder, and read its owner; `shutdown` releases it. Idempotent.

        Raises StorageError if another process holds it, InvalidArgumentError if it is not formatted or is another node's or
        cluster's, CorruptCheckpointError.
        """
        if self._lock is not None:
            return
        if not self.directory.is_dir():
            raise InvalidArgumentError("no such folder: run `tidelog format`", path=self.directory)
        self._lock = DirLock(self.directory).__enter__()
        self._configured = replace(self._configured, is_member=True)
        try:
            self._owner = self._read_owner()
            self.previous_broker_epoch = read_broker_epoch(self.directory)
        except BaseException:
            self._unlock()
            raise

    def _read_owner(self) -> MetaProperties:
        return data_folder.members(self.directory, self._configured)

    def startup(self, plane: HasImage | None = None) -> None:
        """Load the logs of this node's replicas, and begin the background work. Raises StorageError, as `open` does.

        `plane` supplies the cluster's metadata from now on; it must have caught up.
        """
        if plane is None:
            raise InvalidArgumentError("a member's folder is loaded from its cluster's metadata", path=self.directory)
        self.open()
        assert self._owner is not None
        try:
            data_folder.raise_open_files_limit()
            contents = data_folder.list_contents(self.directory)
            if is_pending(self.directory):
                logger.warning("%s: an import was interrupted; what it wrote is discarded", self.directory)
            metadata = ClusterMetadata(plane, self._owner.node_id)
            opened = self._opened(self._owner, metadata)
            folders = ReplicaFolders(self.directory, opened.config, opened.partitions, metadata)
            opened.load(folders, contents, self._progress)
            opened.work.forget_cleaning(folders.set_aside)
            self._folders, self._started = folders, opened
        except BaseException:
            self._unlock()
            raise

    def shutdown(self, broker_epoch: int = NO_BROKER_EPOCH, progress: Callable[[], object] = lambda: None) -> bool:
        """Like `LogManager.shutdown`, with the broker's epoch unless another is given. A folder that was only opened stays
        unchanged.
        """
        was_only_opened = self._lock is not None and self._started is None
        is_clean = super().shutdown(self.broker_epoch if broker_epoch == NO_BROKER_EPOCH else broker_epoch, progress)
        return is_clean or was_only_opened

    @property
    def owner(self) -> MetaProperties:
        """Node, cluster and folder ids, once it is open."""
        if self._owner is None:
            raise InvalidArgumentError("the log manager is not open", path=self.directory)
        return self._owner

    @property
    def replicas(self) -> ReplicaSteps:
        """Applies the metadata to folders and logs, in steps."""
        running = self._running
        assert self._folders is not None
        return ReplicaSteps(self._folders, running.partitions, running.work, running.settings)
