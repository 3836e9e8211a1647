"""Facts about a partition that are stored outside its segments: checkpoints, settings, leader epochs."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from tidelog.errors import CorruptCheckpointError, StorageError
from tidelog.formats import names
from tidelog.formats.leader_epochs import EpochEntry, LeaderEpochs
from tidelog.formats.paths.file_path import FilePath
from tidelog.model import OFFSETS_TOPIC, TRANSACTIONS_TOPIC

COMPACTED_TOPICS = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC})
"""Internal topics that Kafka always creates with cleanup.policy=compact."""


class Claims(NamedTuple):
    """What the data folder says about a partition, outside the partition's segments. None means unknown."""

    recovery_point: int | None = None
    high_watermark: int | None = None
    log_start_offset: int | None = None
    cleaner_offset: int | None = None
    newest_epoch: EpochEntry | None = None
    """Like all claims, this is read before the folder is listed."""
    is_set_compacted: Callable[[], bool] | None = None
    """Looks up whether the topic's settings say that it is compacted. Called only if it matters."""
    is_tiered: Callable[[], bool] | None = None
    """Looks up whether the topic's older segments may be in remote storage. Called only if it matters."""
    was_closed: bool = False
    """Whether the folder has Kafka's clean-shutdown marker, so no batch should be torn."""

    def is_compacted(self, topic: str) -> bool:
        """Return whether the topic is compacted, judged by everything except its batches."""
        if self.cleaner_offset is not None or topic in COMPACTED_TOPICS:
            return True
        return self.is_set_compacted is not None and self.is_set_compacted()


def newest_epoch(directory: FilePath) -> EpochEntry | None:
    """Return a partition's newest leader epoch; None if it has no leader epochs or the checkpoint is damaged."""
    return read_epochs(directory).latest


def read_epochs(directory: FilePath) -> LeaderEpochs:
    """Return a partition's current leader epochs. If the checkpoint is damaged, there are none."""
    try:
        return LeaderEpochs.read(directory / names.LEADER_EPOCH_CHECKPOINT)
    except (CorruptCheckpointError, StorageError):
        return LeaderEpochs()
