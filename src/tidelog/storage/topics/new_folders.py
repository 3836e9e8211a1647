"""Creates the folders of new partitions before the partitions are published. Each step makes many folders; one sync follows.

The checkpoint lines of a deleted partition are removed before a new partition of the same name begins: a recovery point that is
too high would make recovery skip records. `TopicLifecycle` and `ReplicaFolders` each own a `NewFolders`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

from tidelog.errors import StorageError
from tidelog.formats.checkpoints import sync_directory
from tidelog.model import TopicPartition
from tidelog.storage.loading.partition_loader import PartitionFolder
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partitions import Partitions
from tidelog.storage.steps import Steps

PARTITIONS_A_STEP = 16
"""How many partitions are created or renamed in one step, before other work may run."""


class NewFolders:
    """Creates partitions of `partitions` in its data folder `directory`."""

    def __init__(self, directory: Path, partitions: Partitions) -> None:
        self._directory = directory
        self._partitions = partitions

    def made(
        self,
        keys: Sequence[TopicPartition],
        folder_of: Callable[[TopicPartition], PartitionFolder],
        refused: dict[TopicPartition, str] | None = None,
    ) -> Steps[list[PartitionLog]]:
        """Create the partitions' folders, and return their logs, which `publish` publishes.

        With `refused`, partitions that cannot be created are added to `refused` with the reason. Without `refused`, either all
        folders are created or none. Raises StorageError.
        """
        made: list[PartitionLog] = []
        try:
            for start in range(0, len(keys), PARTITIONS_A_STEP):
                folders = [folder_of(key) for key in keys[start : start + PARTITIONS_A_STEP]]
                yield partial(self._make, folders, made, refused)
            if any(self._partitions.is_in_checkpoints(key) for key in keys):
                yield self._partitions.drop_gone
            yield self.sync
        except GeneratorExit:  # The owner is shutting down. The next start will continue from here.
            for log in made:
                log.close_handlers()
            raise
        except BaseException:
            self.unmake(made)
            raise
        return made

    def unmake(self, made: Iterable[PartitionLog]) -> None:
        """Remove created folders. Callable on any thread."""
        for log in made:
            self._partitions.unmake(log)

    def publish(self, made: Sequence[PartitionLog]) -> Steps[None]:
        """Publish the created partitions, all at the same time."""
        try:
            yield from self._partitions.adding(made)
        except GeneratorExit:
            for log in made:
                log.close_handlers()
            raise

    def sync(self) -> None:
        """Sync the data folder's directory entries. Callable on any thread. Raises StorageError."""
        try:
            sync_directory(self._directory)
        except OSError as error:
            raise StorageError(f"cannot sync the data folder: {error.strerror}", path=self._directory) from error

    def _make(
        self, folders: Iterable[PartitionFolder], made: list[PartitionLog], refused: dict[TopicPartition, str] | None
    ) -> None:
        """Create the folders, and add their logs to `made`. After an error, `made` has the logs created before. Callable
        on any thread.
        """
        for folder in folders:
            try:
                made.append(self._partitions.loader.made(folder))
            except StorageError as error:
                if refused is None:
                    raise
                refused[folder.key] = str(error)
