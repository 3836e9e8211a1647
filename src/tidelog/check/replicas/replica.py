"""One replica of a partition: its log, and what its data folder says of it, at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tidelog.formats import names
from tidelog.formats.leader_epochs import LeaderEpochs
from tidelog.model import TopicPartition
from tidelog.reader.log import Log
from tidelog.reader.log_dir import LogDir
from tidelog.reader.missing.claims import Claims


@dataclass
class Replica:
    """A replica in the data folder `directory`. Made by `open`; `close` gives its descriptors back."""

    directory: Path
    key: TopicPartition
    log: Log
    claims: Claims
    """The checkpoints from before the log was listed: the high watermark is never above its end."""

    @classmethod
    def open(cls, log_dir: LogDir, key: TopicPartition) -> Replica:
        """Open a replica. Raises UnknownTopicOrPartitionError, SegmentChangedError, StorageError."""
        claims = log_dir.claims(key)
        return cls(log_dir.path, key, log_dir.log(*key), claims)

    @property
    def is_compacted(self) -> bool:
        """Whether anything says that a cleaner works on the partition; its batches are not asked."""
        return self.claims.is_compacted(self.log.topic)

    @property
    def cleaned_to(self) -> int:
        """Where the first segment begins that no cleaner has looked into; 0 if there was none.

        The cleaner works on whole segments: that in which its checkpoint lies may be rewritten, too.
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
