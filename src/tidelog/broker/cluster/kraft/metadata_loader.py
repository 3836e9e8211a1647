"""Replays batches of the metadata log into the image, in slices of two milliseconds so that the loop is not blocked.

| replayed | what other tasks see meanwhile |
|---|---|
| a batch of the log | topics one by one, each complete: the replay pauses only between topics |
| a metadata transaction (KIP-868) | all of it or nothing |
| a snapshot | nothing until all of it is read; it then replaces the image at once |

The changes of all batches that arrived together are published as one `MetadataDelta`. An unknown or inconsistent record stops the
broker: otherwise it would act on metadata that differs from the cluster's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from time import perf_counter

from tidelog.errors import CorruptDataError
from tidelog.formats.batch_walk import walk
from tidelog.formats.files import ReadOnlyFile
from tidelog.metadata.batches import ValueReader, control_message
from tidelog.metadata.control_records import SnapshotFooterRecord, SnapshotHeaderRecord
from tidelog.metadata.delta import MetadataDelta, difference
from tidelog.metadata.frame import decode_record
from tidelog.metadata.image import MetadataImage, Replay
from tidelog.metadata.records import TopicRecord
from tidelog.metadata.voters_record import VotersRecord
from tidelog.model import NO_TIMESTAMP
from tidelog.records.batch import BatchHeader
from tidelog.wire.fields import Bytes, Message

SLICE_S = 0.002

Publish = Callable[[MetadataDelta], Awaitable[None]]


class MetadataLoader:
    """Replays fetched batches and publishes the changes. Use only on the event loop's thread, one call at a time."""

    def __init__(self, image: MetadataImage, publish: Publish) -> None:
        self.image = image
        self.voters: VotersRecord | None = None
        """The newest VotersRecord, in a quorum whose voters may change; otherwise None."""
        self.changes = 0
        """How many changes have been made to the image."""
        self.last_timestamp = NO_TIMESTAMP
        """The timestamp of the newest replayed record, in epoch ms."""
        self._publish = publish
        self._replay = Replay(image)
        self._reader = ValueReader()
        self._until = 0.0

    @property
    def is_in_transaction(self) -> bool:
        """Whether a metadata transaction is open. Its records take effect only when it ends."""
        return self._replay.is_in_transaction

    async def apply(self, batches: Iterable[tuple[BatchHeader, Bytes]]) -> None:
        """Replay committed batches and publish the changes. Each batch must be complete, with a valid checksum.

        Raises CorruptDataError or ProtocolError for a batch that cannot be read, InvalidRecordError or UnsupportedVersionError
        for a record that cannot be applied.
        """
        delta = MetadataDelta(self.image)
        self._until = perf_counter() + SLICE_S
        for header, data in batches:
            self.last_timestamp = max(self.last_timestamp, header.max_timestamp)
            if header.is_control:
                _, message = control_message(header, data)
                self._take_control(message)
                continue
            records = []
            for value in self._reader.values(header, data):
                records.append(decode_record(value))
                await self._turn()
            for record in records:
                if type(record) is TopicRecord:
                    await self._turn()
                self._replay.add(record, delta)
        if not delta.is_empty:
            self.changes += 1
            await self._publish(delta)

    async def load_snapshot(self, path: Path) -> None:
        """Replace the image's content by a snapshot's and publish the changes. Raises what `apply` raises, and StorageError."""
        image, is_whole, at, timestamp = MetadataImage(), False, 0, NO_TIMESTAMP
        self._until = perf_counter() + SLICE_S
        with ReadOnlyFile(path, fallbacks=()) as file:
            for header in walk(file, 0, file.size_bytes(), crc=True):
                data = file.read(header.position, header.size)
                if header.base_offset != at:
                    raise CorruptDataError(
                        "records are missing from a metadata snapshot", path=path, found=header.base_offset, expected=at
                    )
                at = header.next_offset
                if header.is_control:
                    _, message = control_message(header, data)
                    self._take_control(message)
                    if isinstance(message, SnapshotHeaderRecord):
                        timestamp = message.last_contained_log_timestamp
                    is_whole = isinstance(message, SnapshotFooterRecord)
                    continue
                for value in self._reader.values(header, data):
                    image.replay(decode_record(value))
                    await self._turn()
        if not is_whole:
            raise CorruptDataError("a metadata snapshot is incomplete: it has no footer", path=path)
        self._replay = Replay(self.image)
        delta = difference(self.image, image)
        # The image stays the same object, because others hold references to it.
        vars(self.image).update(vars(image))
        delta.image = self.image
        self.changes += 1
        self.last_timestamp = timestamp
        await self._publish(delta)

    def _take_control(self, message: Message | None) -> None:
        if isinstance(message, VotersRecord):
            self.voters = message

    async def _turn(self) -> None:
        if perf_counter() >= self._until:
            await asyncio.sleep(0)
            self._until = perf_counter() + SLICE_S
