"""One partition of the source: reads its new records for each point, notes deleted ones, and drops truncated ones."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

from tidelog.backup.backup import Backup
from tidelog.backup.manifest import Gap, PartitionEnds, PartitionManifest, TopicManifest
from tidelog.capture.capture_source import CaptureSource, SourceEnds
from tidelog.capture.cut import CutState
from tidelog.capture.partition_writer import MOST_SEGMENT_BYTES, PartitionWriter, Transaction
from tidelog.errors import IllegalStateError, OffsetOutOfRangeError
from tidelog.formats import names
from tidelog.model import MAX_OFFSET, TopicPartition

REMOVED = "removed by retention or DeleteRecords before the backup could read it"
_ATTEMPTS = 5
"""How many times a read skips records that were removed meanwhile, before the partition fails."""


class PartitionCapture:
    """A partition of the source. `ends` and `sha256` are from the last point that contains the partition, or None if no point
    does.
    """

    def __init__(self, backup: Backup, key: TopicPartition, topic_id: uuid.UUID) -> None:
        self.key = key
        self.ends: PartitionEnds | None = None
        self.sha256: str | None = None
        self.gaps: list[Gap] = []
        """Gaps that were found for the point that is being taken."""
        self._backup = backup
        self.topic_id = topic_id
        self._writer: PartitionWriter | None = None
        self._manifest: PartitionManifest | None = None
        self._is_late = False
        """Whether the partition failed at the last point."""
        self._seen: SourceEnds | None = None
        """The ends that the source reported for the last point."""
        self._now: SourceEnds | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the backup, which `reopen` restores."""
        return {**self.__dict__, "_backup": None}

    def reopen(self, backup: Backup) -> PartitionCapture:
        """Continue in this process after another process has read the partition."""
        self._backup = backup
        if self._writer is not None:
            self._writer.reopen(backup)
        return self

    def resume(self, topic: TopicManifest, ends: PartitionEnds, *, is_late: bool) -> None:
        """Continue from a point. `is_late` says that the partition may have failed at that point."""
        self._is_late = is_late
        self.ends, self.sha256 = ends, topic.partitions[ends.partition]

    def take_written(self) -> int:
        """Return the bytes written since the last call."""
        if self._writer is None:
            return 0
        written, self._writer.written_bytes = self._writer.written_bytes, 0
        return written

    def epoch_to_check(self, now: SourceEnds) -> int:
        """Return the leader epoch of the last batch if the source may have truncated its log since, otherwise -1."""
        if self.ends is None or (self._seen is not None and self._seen.leader_epoch == now.leader_epoch):
            return -1
        return self._opened().last_epoch

    def truncate(self, end_offset: int) -> None:
        """Drop the records read at or after an offset."""
        if end_offset < self._opened().position:
            self._opened().cut_back(end_offset)

    def begin(self) -> None:
        """Begin a new point."""
        self.gaps = []

    def must_read(self, now: SourceEnds) -> bool:
        """Store the source's offsets for this point. Return whether `read` must be called."""
        self._now = now
        ends = self.ends
        if ends is None or self._writer is not None or ends.stable_offset < ends.end_offset:
            return True
        return (now.log_start_offset, now.end_offset) != (ends.log_start_offset, ends.end_offset)

    def read(self, source: CaptureSource, segment_bytes: int, now_ms: int, advance: Callable[[int], None]) -> None:
        """Read and write the new records. Different threads may read different partitions. Raises the errors of reading
        and writing.
        """
        now = self._now
        assert now is not None
        writer = self._opened(now.log_start_offset)
        writer.segment_bytes = min(segment_bytes, MOST_SEGMENT_BYTES)
        if now.end_offset < writer.position and now.log_start_offset <= writer.position:
            return  # A new leader's high watermark may be lower at first. Truncation is detected by leader epochs instead.
        for _ in range(_ATTEMPTS):
            if writer.position < now.log_start_offset:
                self._skip(writer, now.log_start_offset, now_ms)
            try:
                for header, data, begins_segment in source.read(self.key, writer.position, now.end_offset):
                    if begins_segment:
                        writer.begin_segment()
                    writer.add(header, data)
                    advance(len(data))
                writer.flush()  # Flush here, because partitions are read on several threads, but finished on one.
                return
            except OffsetOutOfRangeError:
                found, failed = source.ends([self.key])
                if self.key in failed:
                    raise failed[self.key].error from None
                if found[self.key].log_start_offset <= writer.position:
                    raise
                now = self._now = now._replace(
                    log_start_offset=found[self.key].log_start_offset,
                    end_offset=max(now.end_offset, found[self.key].log_start_offset),
                )
        raise IllegalStateError(f"{names.log_dir_name(*self.key)}: records are deleted faster than they can be read")

    def cut_state(self) -> CutState:
        """Return what the cut of this partition is computed from. Call it after `read`."""
        now, seen = self._now, self._seen
        assert now is not None
        if self._writer is None:
            assert self.ends is not None
            return CutState(self.ends.stable_offset, 0, self.ends.end_offset, ())
        writer = self._writer
        cut, end = (0, 0) if self.ends is None else (self.ends.stable_offset, self.ends.end_offset)
        open_ones = [Transaction(producer, first, -1) for producer, first in writer.open_transactions.items()]
        return CutState(
            min(max(now.stable_offset, now.log_start_offset), writer.stable_offset()),
            cut if seen is None else seen.stable_offset,
            MAX_OFFSET if self._is_late else end,
            [*writer.ended, *open_ones],
        )

    def finish(self, cut: int, now_ms: int) -> None:
        """Write the partition's manifest if it differs from the last point's. Raises StorageError."""
        now, writer = self._now, self._writer
        assert now is not None
        if writer is not None:
            start = min(now.log_start_offset, writer.position)
            cut = max(cut, start)
            offsets = (start, writer.position, cut)
            if self.ends is None or writer.is_changed or offsets != self.ends[1:4]:
                self.sha256 = writer.finish(start, cut, now_ms)
            self.ends = writer.manifest.ends
            self._manifest = writer.manifest
        self._seen, self._is_late = now, False

    @property
    def are_transactions_known(self) -> bool:
        """Whether every transaction that ended at or after the cut is known."""
        return self._writer is None or (self.ends is not None and self.ends.stable_offset >= self._writer.ended_from)

    def forget_ended(self) -> None:
        """Drop the transactions that ended below the cut."""
        if self._writer is not None and self.ends is not None:
            self._writer.forget_ended(self.ends.stable_offset)

    def miss(self) -> None:
        """Record that the partition failed at the current point."""
        self._is_late = True

    def _skip(self, writer: PartitionWriter, log_start_offset: int, now_ms: int) -> None:
        gap = Gap(writer.position, log_start_offset, now_ms, writer.manifest.max_time, REMOVED)
        writer.skip(gap)
        self.gaps.append(gap)

    def _opened(self, log_start_offset: int = 0) -> PartitionWriter:
        if self._writer is None:
            manifest = self._empty(log_start_offset) if self.sha256 is None else self.manifest
            self._writer = PartitionWriter(self._backup, manifest)
            if manifest.stable_offset < manifest.end_offset:
                self._writer.recall_ended()
        return self._writer

    def _empty(self, start: int) -> PartitionManifest:
        topic, number = self.key
        return PartitionManifest(topic, self.topic_id, number, start, start, start, (), (), (), None, ())

    def drop(self) -> None:
        """Drop the records read for a point that was abandoned."""
        self._writer = self._now = None
        self.gaps = []

    @property
    def manifest(self) -> PartitionManifest:
        """The partition's manifest in the last point, read on first use."""
        if self._manifest is None:
            assert self.sha256 is not None
            self._manifest = self._backup.read_partition(self.sha256)
        return self._manifest
