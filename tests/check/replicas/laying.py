"""Replicas laid by hand: the same batches in several folders, in segments of each one's own."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.reader.build import LogBuilder
from tidelog.formats import names
from tidelog.formats.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from tidelog.formats.leader_epochs import EpochEntry, LeaderEpochs
from tidelog.formats.partition_metadata import write_topic_id
from tidelog.model import TopicPartition
from tidelog.records.batch import iter_headers

TOPIC_ID = uuid.UUID(int=7)
EPOCHS = (EpochEntry(0, 0),)


class Laid(NamedTuple):
    """Where a batch lies: the file, and the bytes in it."""

    path: Path
    position: int
    size: int


def lay(
    folder: Path,
    batches: Sequence[bytes],
    *,
    rolls: Sequence[int] = (),
    high_watermark: int | None = None,
    log_start: int | None = None,
    cleaned: int | None = None,
    epochs: Sequence[EpochEntry] = EPOCHS,
    topic_id: uuid.UUID | None = TOPIC_ID,
    topic: str = "t",
    partition: int = 0,
) -> list[Laid]:
    """Lay a replica of a partition into a data folder, with a new segment before the batches whose numbers are in `rolls`."""
    key = TopicPartition(topic, partition)
    directory = folder / names.log_dir_name(topic, partition)
    first = next(iter_headers(batches[0])) if batches else None
    builder = LogBuilder(directory, start_offset=0 if first is None else first.base_offset)
    laid = []
    for number, batch in enumerate(batches):
        if number in rolls:
            builder.roll(max(next(iter_headers(batch)).base_offset, builder.next_offset))
        path = directory / names.file_name(builder.base_offset, names.LOG_SUFFIX)
        laid.append(Laid(path, len(builder.log), len(batch)))
        builder.append(batch)
    builder.close()
    if epochs:
        LeaderEpochs(epochs).write(directory / names.LEADER_EPOCH_CHECKPOINT)
    if topic_id is not None:
        write_topic_id(directory / names.PARTITION_METADATA, topic_id)
    for name, offset in (
        (names.HIGH_WATERMARK_CHECKPOINT, high_watermark),
        (names.LOG_START_OFFSET_CHECKPOINT, log_start),
        (names.CLEANER_CHECKPOINT, cleaned),
    ):
        if offset is not None:
            path = folder / name
            write_offset_checkpoint(path, {**read_offset_checkpoint(path), key: offset})
    return laid


def flip(path: Path, position: int, mask: int = 0x01) -> None:
    """Change one byte of a file."""
    data = bytearray(path.read_bytes())
    data[position] ^= mask
    path.write_bytes(bytes(data))
