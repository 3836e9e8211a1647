"""A member's local copy of the cluster metadata: a snapshot in ``__cluster_metadata-0``, as Kafka's brokers keep it.

| | |
|---|---|
| written | soon after the start, every five minutes if anything has changed, and at shutdown |
| read | by the next start, which continues from it, and by tools, for the topics and their settings |
| if a snapshot cannot be read | it is skipped with a log line; all metadata is fetched from the controllers |

Kafka's brokers also append the log's batches. Like this broker, they can start from a snapshot that is newer than their log.

The image does not change while a snapshot's records are built, in slices on the loop. Then another thread writes them.
"""

from __future__ import annotations

import asyncio
import logging
import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import perf_counter

from tidelog.broker.cluster.kraft.metadata_fetcher import MetadataFetcher
from tidelog.broker.cluster.kraft.metadata_loader import MetadataLoader
from tidelog.broker.cluster.kraft.snapshot_fetcher import PART_SUFFIX, Snapshot, finished
from tidelog.errors import StorageError, TidelogError
from tidelog.formats.checkpoints import sync_directory
from tidelog.formats.paths.file_path import local_path
from tidelog.metadata.batches import SNAPSHOT_BATCH_RECORDS, build_batch, build_control_batch
from tidelog.metadata.control_records import KRaftVersionRecord, SnapshotFooterRecord, SnapshotHeaderRecord
from tidelog.reader.metadata_log import list_snapshots
from tidelog.wire.fields import Message

logger = logging.getLogger("tidelog.broker")

FIRST_S = 10.0
INTERVAL_S = 300.0
"""Seconds between two snapshots, if anything has changed."""

SLICE_S = 0.002


class MetadataCopy:
    """Keeps snapshots in `folder`. Use only on the event loop's thread."""

    def __init__(self, folder: Path, fetcher: MetadataFetcher, loader: MetadataLoader) -> None:
        self._folder = folder
        self._fetcher = fetcher
        self._loader = loader
        self._kept_changes = 0

    async def load(self) -> None:
        """Load the newest readable snapshot, if one exists."""
        try:
            found = list_snapshots(self._folder) if self._folder.is_dir() else []
        except StorageError as error:
            logger.warning("cannot list the local metadata snapshots, continuing without them: %s", error)
            return
        for one in found:
            try:
                await self._fetcher.begin_with(local_path(one.path), Snapshot(one.end_offset, one.epoch))
            except TidelogError as error:
                logger.warning("skipping an unreadable metadata snapshot: %s", error)
                continue
            self._kept_changes = self._loader.changes
            return

    async def run(self) -> None:
        """Write snapshots periodically until cancelled."""
        wait_s = FIRST_S
        while True:
            await asyncio.sleep(wait_s)
            await self.write()
            wait_s = INTERVAL_S

    async def write(self) -> None:
        """Write a snapshot, unless nothing has changed since the last one. Disk errors are logged."""
        loader = self._loader
        async with self._fetcher.replaying:
            if loader.changes == self._kept_changes or loader.is_in_transaction or not self._fetcher.is_between_batches:
                return
            snapshot, changes = Snapshot(self._fetcher.end_offset, self._fetcher.end_epoch), loader.changes
            batches = await _batches(loader, snapshot.epoch)
        try:
            await finished(partial(_write, self._folder, snapshot, batches))
        except OSError as error:
            logger.warning("%s: cannot write a snapshot of the cluster metadata: %s", self._folder, error.strerror or error)
            return
        self._kept_changes = changes


async def _batches(loader: MetadataLoader, epoch: int) -> list[bytes]:
    timestamp, until = loader.last_timestamp, perf_counter() + SLICE_S
    control: list[Message] = [SnapshotHeaderRecord(0, timestamp)]
    if loader.voters is not None:
        control += [KRaftVersionRecord(0, 1), loader.voters]
    batches = [build_control_batch(message, offset, epoch, timestamp) for offset, message in enumerate(control)]
    offset = len(batches)
    values: list[bytes] = []
    for value in loader.image.to_values():
        values.append(value)
        if len(values) == SNAPSHOT_BATCH_RECORDS:
            batches.append(build_batch(values, offset, epoch, timestamp))
            offset, values = offset + len(values), []
        if perf_counter() >= until:
            await asyncio.sleep(0)
            until = perf_counter() + SLICE_S
    if values:
        batches.append(build_batch(values, offset, epoch, timestamp))
    batches.append(build_control_batch(SnapshotFooterRecord(0), offset + len(values), epoch, timestamp))
    return batches


def _write(folder: Path, snapshot: Snapshot, batches: list[bytes]) -> None:
    """Write a snapshot under a temporary name, sync it, rename it, and remove older snapshots."""
    folder.mkdir(exist_ok=True)
    path = folder / snapshot.file_name
    part = path.with_name(path.name + PART_SUFFIX)
    try:
        with part.open("wb") as file:
            file.writelines(batches)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
        sync_directory(folder)
    except OSError:
        with suppress(OSError):
            part.unlink()
        raise
    for old in list_snapshots(folder):
        if old.end_offset < snapshot.end_offset:
            with suppress(OSError):
                local_path(old.path).unlink()
