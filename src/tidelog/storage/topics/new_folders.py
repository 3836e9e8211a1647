"""Folders of new partitions, made before anybody knows of them: in steps, many at a time, all of them with one sync.

What a checkpoint says of a partition that was deleted is dropped before its successor begins: a recovery point that is too high
would keep a recovery from looking at the records below it. `TopicLifecycle` and `ReplicaFolders` each own one.
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
"""So many partitions are made, or renamed, before others have their turn."""


class NewFolders:
    """Makes partitions of `partitions` in its data folder `directory`."""

    def __init__(self, directory: Path, partitions: Partitions) -> None:
        self._directory = directory
        self._partitions = partitions

    def made(
        self,
        keys: Sequence[TopicPartition],
        folder_of: Callable[[TopicPartition], PartitionFolder],
        refused: dict[TopicPartition, str] | None = None,
    ) -> Steps[list[PartitionLog]]:
        """Make folders and return their logs, not yet published: `publish` does that.

        All or none, unless those that cannot be made may go into `refused`, with the reason. Raises StorageError.
        """
        made: list[PartitionLog] = []
        try:
            for start in range(0, len(keys), PARTITIONS_A_STEP):
                folders = [folder_of(key) for key in keys[start : start + PARTITIONS_A_STEP]]
                yield partial(self._make, folders, made, refused)
            if any(self._partitions.is_in_checkpoints(key) for key in keys):
                yield self._partitions.drop_gone
            yield self.sync
        except GeneratorExit:  # The owner ends: the next start continues with what is there.
            for log in made:
                log.close_handlers()
            raise
        except BaseException:
            self.unmake(made)
            raise
        return made

    def unmake(self, made: Iterable[PartitionLog]) -> None:
        """Remove what was made. On any thread."""
        for log in made:
            self._partitions.unmake(log)

    def publish(self, made: Sequence[PartitionLog]) -> Steps[None]:
        """Have partitions that were made be there, all at the same moment."""
        try:
            yield from self._partitions.adding(made)
        except GeneratorExit:
            for log in made:
                log.close_handlers()
            raise

    def sync(self) -> None:
        """Have the data folder's entries on the disk. On any thread. Raises StorageError."""
        try:
            sync_directory(self._directory)
        except OSError as error:
            raise StorageError(f"cannot sync the data folder: {error.strerror}", path=self._directory) from error

    def _make(
        self, folders: Iterable[PartitionFolder], made: list[PartitionLog], refused: dict[TopicPartition, str] | None
    ) -> None:
        """On any thread; what was made before an error is in `made`."""
        for folder in folders:
            try:
                made.append(self._partitions.loader.made(folder))
            except StorageError as error:
                if refused is None:
                    raise
                refused[folder.key] = str(error)
