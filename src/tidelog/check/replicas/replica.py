"""One replica of a partition: its log, and what its data folder says about it, at one moment."""

from __future__ import annotations

from dataclasses import dataclass

from tidelog.formats import names
from tidelog.formats.leader_epochs import LeaderEpochs
from tidelog.formats.paths.file_path import FilePath
from tidelog.model import TopicPartition
from tidelog.reader.log import Log
from tidelog.reader.log_dir import LogDir
from tidelog.reader.missing.claims import Claims


@dataclass
class Replica:
    """A replica in the data folder `directory`. `open` creates it; `close` closes its files."""

    directory: FilePath
    key: TopicPartition
    log: Log
    claims: Claims
    """The checkpoints as read before the log was listed, so that the high watermark is never above the log's end."""

    @classmethod
    def open(cls, log_dir: LogDir, key: TopicPartition) -> Replica:
        """Open a replica. Raises UnknownTopicOrPartitionError, SegmentChangedError, StorageError."""
        claims = log_dir.claims(key)
        return cls(log_dir.path, key, log_dir.log(*key), claims)

    @property
    def is_compacted(self) -> bool:
        """Whether the partition is compacted according to the folder; its batches are not examined."""
        return self.claims.is_compacted(self.log.topic)

    @property
    def cleaned_to(self) -> int:
        """The base offset of the first segment that no cleaner has processed; 0 if no cleaner ran.

        The cleaner processes whole segments, so the segment that contains its checkpoint may be rewritten, too.
        """
        cleaned = self.claims.cleaner_offset or 0
        bases = [segment.base_offset for segment in self.log.segments if segment.base_offset >= cleaned]
        return min(bases, default=cleaned) if cleaned else 0

    def leader_epochs(self) -> LeaderEpochs | None:
        """Return the leader epochs, None if there is no checkpoint of them. Raises CorruptCheckpointError, StorageError."""
        path = self.log.directory / names.LEADER_EPOCH_CHECKPOINT
        return LeaderEpochs.read(path) if path.exists() else None

    def close(self) -> None:
        self.log.close()
