"""Tiered partitions made to measure: the segments of several leaders as files of LocalTieredStorage, and a local folder.

Each leader cuts its log into segments at batches of its own choice, and copies some of them. The next leader may have lost the
log's end, and goes on from there.
"""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from tests.reader.build import LogBuilder
from tidelog.formats import names
from tidelog.formats.checkpoints import write_offset_checkpoint
from tidelog.formats.leader_epochs import LeaderEpochs
from tidelog.formats.partition_metadata import format_topic_id, write_topic_id
from tidelog.metadata.batches import build_batch
from tidelog.metadata.frame import encode_record
from tidelog.metadata.remote_log_records import (
    RemoteLogSegmentIdEntry,
    RemoteLogSegmentMetadataRecord,
    RemoteLogSegmentMetadataUpdateRecord,
    SegmentLeaderEpochEntry,
    SegmentState,
    TopicIdPartitionEntry,
)
from tidelog.model import REMOTE_LOG_METADATA_TOPIC, TopicPartition
from tidelog.objects.tier import Tier, TieredAddress
from tidelog.reader.tiered.local_layout import ROOT
from tidelog.records.batch import BatchHeader, iter_headers

TOPIC_ID = uuid.UUID(int=7)
FOLDER = "orders-0"


class Batch(NamedTuple):
    """A batch of a leader's log."""

    header: BatchHeader
    data: bytes

    @classmethod
    def of(cls, data: bytes) -> Batch:
        (header,) = iter_headers(data)
        return cls(header, data)


def epochs_of(batches: Iterable[Batch]) -> LeaderEpochs:
    """Return the leader epochs of batches."""
    found = LeaderEpochs()
    for batch in batches:
        found.assign(batch.header.leader_epoch, batch.header.base_offset)
    return found


class TierBuilder:
    """Remote storage, and the data folder that lists it, below `folder`."""

    def __init__(self, folder: Path, *, interval_bytes: int = 0) -> None:
        self.data, self.remote, self.leaders = folder / "data", folder / "remote", folder / "leaders"
        self._interval_bytes = interval_bytes
        self._records: list[bytes] = []
        self.data.mkdir(parents=True)

    @property
    def address(self) -> str:
        return str(TieredAddress(str(self.data), Tier(str(self.remote))))

    def leader(self, log: Sequence[Batch], rolls: Iterable[int]) -> LogBuilder:
        """Write a leader's log into a folder of its own, in segments that begin at the batches `rolls`."""
        builder = LogBuilder(
            self.leaders / f"{len(list(self.leaders.glob('*')))}" / FOLDER,
            start_offset=log[0].header.base_offset,
            interval_bytes=self._interval_bytes,
        )
        at = set(rolls) - {0}
        for number, batch in enumerate(log):
            if number in at:
                builder.roll()
            builder.append(batch.data)
        return builder.close()

    def copy(self, leader: LogBuilder, log: Sequence[Batch], start: int, end: int) -> None:
        """Copy the segment of the batches [start, end), which the leader has cut so, to remote storage."""
        batches = log[start:end]
        base, next_offset = batches[0].header.base_offset, batches[-1].header.next_offset
        segment_id = uuid.UUID(int=len(self._records) + 1)
        folder = self.remote / ROOT / f"{FOLDER}-{format_topic_id(TOPIC_ID)}"
        folder.mkdir(parents=True, exist_ok=True)
        stem = f"{names.file_name(base, '')}-{format_topic_id(segment_id)}"
        for file in leader.directory.glob(f"{names.file_name(base, '')}.*"):
            if file.suffix != names.SNAPSHOT_SUFFIX:
                shutil.copyfile(file, folder / f"{stem}{file.suffix}")
        shutil.copyfile(leader.file(next_offset, names.SNAPSHOT_SUFFIX), folder / f"{stem}{names.SNAPSHOT_SUFFIX}")
        epochs = epochs_of(batches)
        (folder / f"{stem}.leader_epoch_checkpoint").write_bytes(epochs.encode())
        partition = TopicIdPartitionEntry("orders", TOPIC_ID, 0)
        record = RemoteLogSegmentMetadataRecord(
            RemoteLogSegmentIdEntry(partition, segment_id),
            base,
            next_offset - 1,
            1,
            max(batch.header.max_timestamp for batch in batches),
            len(self._records),
            [SegmentLeaderEpochEntry(one.epoch, one.start_offset) for one in epochs.entries],
            sum(len(batch.data) for batch in batches),
            None,
            SegmentState.COPY_SEGMENT_STARTED,
            False,
        )
        done = RemoteLogSegmentMetadataUpdateRecord(
            record.remote_log_segment_id, 1, len(self._records), None, SegmentState.COPY_SEGMENT_FINISHED
        )
        self._records += [encode_record(record, 0), encode_record(done, 0)]

    def finish(self, leader: LogBuilder, epochs: LeaderEpochs, local_start: int, log_start: int) -> None:
        """Write the data folder: the local segments of `leader` from offset `local_start` on, and what is remote."""
        shutil.copytree(leader.directory, self.data / FOLDER)
        for file in (self.data / FOLDER).iterdir():
            if names.offset_from_file_name(file.name) < local_start:
                file.unlink()
        epochs.truncate_from_start(log_start)
        (self.data / FOLDER / names.LEADER_EPOCH_CHECKPOINT).write_bytes(epochs.encode())
        write_topic_id(self.data / FOLDER / names.PARTITION_METADATA, TOPIC_ID)
        write_offset_checkpoint(self.data / names.LOG_START_OFFSET_CHECKPOINT, {TopicPartition("orders", 0): log_start})
        metadata = LogBuilder(self.data / f"{REMOTE_LOG_METADATA_TOPIC}-0")
        if self._records:
            metadata.append(build_batch(self._records, 0, 0, 1))
        metadata.close()


def segments_of(log: Sequence[Batch], rolls: Iterable[int]) -> list[tuple[int, int]]:
    """Return the segments, as numbers of batches, of a leader that cuts its log at `rolls`; the last one is active."""
    return list(pairwise([*sorted({0, *rolls}), len(log)]))
