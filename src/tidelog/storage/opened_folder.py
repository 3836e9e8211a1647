"""A data folder while it is open: its partitions, topics and background work.

`LogManager` owns one `OpenedFolder` while it runs; `topics` decides which topics exist.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tidelog.clock import Clock
from tidelog.errors import StorageError
from tidelog.formats.dir_lock import DirLock
from tidelog.storage.background_work import BackgroundWork
from tidelog.storage.broker_settings import BrokerSettings, configured_by_log
from tidelog.storage.folder.clean_shutdown import take_clean_shutdown, write_clean_shutdown
from tidelog.storage.folder.data_folder import FolderContents
from tidelog.storage.folder.dir_checkpoints import DirCheckpoints
from tidelog.storage.folder.meta_properties import MetaProperties
from tidelog.storage.loading.loader import RecoveryProgress
from tidelog.storage.manager_config import ManagerConfig
from tidelog.storage.metadata.cluster_metadata import MetadataSource
from tidelog.storage.partitions import Partitions, Progress
from tidelog.storage.scheduler import Scheduler
from tidelog.storage.segment.descriptors import close_on_shortage_by, forget_closer
from tidelog.storage.topics.kept_topics import KeptTopics
from tidelog.storage.topics.topic_table import warn_of_unknown

logger = logging.getLogger("tidelog.storage")


class OpenedFolder:
    """The folder `directory` of `owner`, with the metadata `source`. Creating the object removes the clean-shutdown marker; then
    call `load`.

    Raises StorageError.
    """

    topics: KeptTopics
    work: BackgroundWork
    settings: BrokerSettings

    def __init__(
        self,
        directory: Path,
        clock: Clock,
        scheduler: Scheduler,
        owner: MetaProperties,
        source: MetadataSource,
        configured: ManagerConfig,
        lock: DirLock,
        *,
        recovery_progress: Callable[[RecoveryProgress], None] | None,
        jitter: random.Random | None,
    ) -> None:
        self.directory = directory
        self.owner = owner
        self.source = source
        self.config = configured_by_log(configured, source)
        self._clock = clock
        self._scheduler = scheduler
        self._configured = configured
        self._lock = lock
        checkpoints = self._checkpoints = DirCheckpoints(directory)
        self.had_clean_shutdown = take_clean_shutdown(directory)
        self.partitions = Partitions(
            directory,
            clock,
            scheduler,
            checkpoints,
            had_clean_shutdown=self.had_clean_shutdown,
            producer_id_expiration_ms=self.config.producer_id_expiration_ms,
            recovery_progress=recovery_progress,
            jitter=jitter,
        )

    def load(
        self,
        topics: KeptTopics,
        contents: FolderContents,
        progress: Progress | None,
        loaded: Callable[[], object] = lambda: None,
    ) -> None:
        """Load the partitions, call `loaded`, begin the background work. Raises StorageError, and what `loaded` raises.

        An interrupted call leaves the folder as clean as before.
        """
        partitions, self.topics = self.partitions, topics
        self.work = BackgroundWork(self.directory, self._clock, self._scheduler, self.config, partitions, topics)
        partitions.events = self.work
        try:
            keys = topics.sort_out(contents)
            warn_of_unknown(self.directory, {key.topic for key in keys if not topics.is_known(key.topic)})
            folders = [topics.folder_of(key, contents.partitions[key]) for key in keys]
            partitions.load_all(folders, self.config.recovery_threads, progress)
            loaded()
            self._checkpoints.begin()
        except BaseException:
            self._abandon()
            raise
        self.work.schedule()
        close_on_shortage_by(partitions.give_descriptors_back)
        self.settings = BrokerSettings(self._configured, self.source, topics.table, partitions, self.work, self._scheduler)

    def _abandon(self) -> None:
        """Give up a start. If the last shutdown was clean, the folder stays clean, so that no recovery is needed."""
        if not self.had_clean_shutdown:
            self.partitions.close_handlers()
        elif self.partitions.close_all(self._lock.shared):
            with suppress(StorageError):
                write_clean_shutdown(self.directory)

    def close(self, broker_epoch: int, progress: Callable[[], object], closed: Callable[[], object]) -> bool:
        """Flush and close every log, call `closed`, write the checkpoints and the clean-shutdown marker; return whether it was
        clean.
        """
        forget_closer(self.partitions.give_descriptors_back)
        self.work.stop()
        is_clean = False
        try:
            is_clean = self.partitions.close_all(self._lock.shared, progress)
            closed()
            self.work.finish()
            if self._lock.is_shared:
                raise StorageError("threads have not ended, and may still write")
            if is_clean:
                write_clean_shutdown(self.directory, broker_epoch)
        except StorageError as error:
            is_clean = False
            logger.error("%s: the next start must recover the folder: %s", self.directory, error)
        return is_clean

    def abort(self) -> None:
        """Release the descriptors, and write nothing."""
        forget_closer(self.partitions.give_descriptors_back)
        self.work.abandon()
        self.partitions.close_handlers()
