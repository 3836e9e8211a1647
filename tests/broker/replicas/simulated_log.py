"""A log of (epoch, value) in memory, with what a `Partition` asks of one, and what a crash leaves of it."""

from __future__ import annotations

from tidelog.formats.leader_epochs import EpochEntry, LeaderEpochs
from tidelog.storage.partition.offset_metadata import LogOffsetMetadata


class Settings:
    def __init__(self, min_insync_replicas: int = 1) -> None:
        self.min_insync_replicas = min_insync_replicas


class SimulatedLog:
    """Its records have the offsets from 0 on. `flushed_to` is what a crash leaves at least."""

    def __init__(self, settings: Settings | None = None) -> None:
        self.config = settings or Settings()
        self.records: list[tuple[int, int]] = []
        self.epochs = LeaderEpochs(())
        self.high_watermark = 0
        self.log_start_offset = 0
        self.flushed_to = 0
        self.flushed_epochs: list[EpochEntry] = []
        self.is_flush_awaited = False

    @property
    def log_end_offset(self) -> int:
        return len(self.records)

    @property
    def log_end_offset_metadata(self) -> LogOffsetMetadata:
        return LogOffsetMetadata(len(self.records), 0, len(self.records))

    @property
    def recovery_point(self) -> int:
        return self.flushed_to

    def note_leader_epoch_soon(self, leader_epoch: int, start_offset: int) -> None:
        self.epochs.assign(leader_epoch, start_offset)

    def update_high_watermark(self, offset: int | LogOffsetMetadata) -> int:
        wanted = offset if isinstance(offset, int) else offset.message_offset
        self.high_watermark = max(0, min(wanted, len(self.records)))
        return self.high_watermark

    def append(self, epoch: int, value: int) -> int:
        self.epochs.assign(epoch, len(self.records))
        self.records.append((epoch, value))
        return len(self.records)

    def end_offset_for_epoch(self, leader_epoch: int) -> tuple[int, int] | None:
        found = self.epochs.end_offset_for(leader_epoch, len(self.records))
        return None if found[0] < 0 else found

    def truncate_to(self, offset: int) -> None:
        del self.records[offset:]
        self.epochs.truncate_from_end(offset)
        self.flushed_epochs = list(self.epochs.entries)
        self.high_watermark = min(self.high_watermark, len(self.records))
        self.flushed_to = min(self.flushed_to, len(self.records))

    def flush(self) -> None:
        self.flushed_to = len(self.records)
        self.flushed_epochs = list(self.epochs.entries)

    def load_again(self) -> None:
        """Become what a load finds: an epoch that was noted, and has no records, may not have reached the disk."""
        self.epochs = LeaderEpochs(entry for entry in self.flushed_epochs if entry.start_offset <= len(self.records))
        for offset, (epoch, _) in enumerate(self.records):
            if self.epochs.latest is None or epoch > self.epochs.latest.epoch:
                self.epochs.assign(epoch, offset)
