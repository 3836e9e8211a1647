"""Fetches a metadata snapshot from the leader in pieces (KIP-630), straight into a file.

The file is written as ``.part`` and renamed once it is complete and synced. An unfinished fetch starts over, because the leader
may have a newer snapshot by then.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from tidelog.broker.peers.channel import Channel
from tidelog.errors import BrokerError, ProtocolError, StorageError
from tidelog.formats.checkpoints import sync_directory
from tidelog.model import METADATA_TOPIC
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    PartitionSnapshot,
    PartitionSnapshotResult,
    SnapshotId,
    TopicSnapshot,
)

PIECE_BYTES = 1 << 20

PART_SUFFIX = ".part"


class Snapshot(NamedTuple):
    """The id of a snapshot. The snapshot replaces all records below `end_offset`, the last of which has `epoch`."""

    end_offset: int
    epoch: int

    @property
    def file_name(self) -> str:
        return f"{self.end_offset:020}-{self.epoch:010}.checkpoint"


class SnapshotFetcher:
    """Fetches snapshots into `folder`, which is created if it is missing."""

    def __init__(self, folder: Path, node_id: int, cluster_id: str) -> None:
        self._folder = folder
        self._node_id = node_id
        self._cluster_id = cluster_id

    async def fetch(self, channel: Channel, leader_epoch: int, snapshot: Snapshot) -> Path:
        """Fetch a snapshot and return its file.

        Raises BrokerError if the leader no longer has it or no longer leads, ProtocolError, StorageError, and what `Channel.call`
        raises.
        """
        path = self._folder / snapshot.file_name
        part = path.with_name(path.name + PART_SUFFIX)
        opened: list[int] = []
        try:
            await _on_disk(part, lambda: _begin(part, opened))
            (fd,) = opened
            position, size = 0, -1
            while position != size:
                piece = await self._piece(channel, leader_epoch, snapshot, position)
                if piece.position != position or (size >= 0 and piece.size != size) or not piece.size > position:
                    found = f"position {piece.position} of {piece.size} bytes"
                    raise ProtocolError(
                        "the leader sent a chunk of a snapshot that was not requested",
                        path=channel.place,
                        found=found,
                        expected=f"position {position}",
                    )
                size, data = piece.size, piece.unaligned_records
                if not data or position + len(data) > size:
                    raise ProtocolError(
                        "a chunk of a snapshot has the wrong size", path=channel.place, found=f"{len(data or b'')} bytes"
                    )
                await _on_disk(part, lambda: _write(fd, data))  # noqa: B023  # awaited here
                position += len(data)
            await _on_disk(part, lambda: _finish(fd, part, path))
        except BaseException:
            with suppress(OSError):
                part.unlink()
            raise
        finally:
            for fd in opened:
                os.close(fd)
        return path

    async def _piece(self, channel: Channel, leader_epoch: int, snapshot: Snapshot, position: int) -> PartitionSnapshotResult:
        wanted = PartitionSnapshot(0, leader_epoch, SnapshotId(*snapshot), position)
        request = FetchSnapshotRequest(self._cluster_id, self._node_id, PIECE_BYTES, [TopicSnapshot(METADATA_TOPIC, [wanted])])
        response: FetchSnapshotResponse = await channel.call(request)
        if not response.error_code and len(response.topics) == 1 and len(response.topics[0].partitions) == 1:
            (piece,) = response.topics[0].partitions
            code = piece.error_code
        else:
            piece, code = None, response.error_code or ErrorCode.UNKNOWN_SERVER_ERROR
        if code or piece is None:
            raise BrokerError(
                f"the leader did not send the snapshot {snapshot.file_name}",
                error_code=code,
                path=channel.place,
                found=f"error {code}",
            )
        return piece


async def finished(call: Callable[[], object]) -> None:
    """Run `call` on another thread, and wait until it has ended, even if the caller is cancelled: until then `call` may use
    descriptors and the folder. Raises what `call` raises.
    """
    future = asyncio.get_running_loop().run_in_executor(None, call)
    try:
        await asyncio.shield(future)
    except asyncio.CancelledError:
        await asyncio.wait([future])
        raise


async def _on_disk(path: Path, call: Callable[[], object]) -> None:
    try:
        await finished(call)
    except OSError as error:
        raise StorageError(f"cannot write a metadata snapshot: {error.strerror}", path=path) from error


def _begin(part: Path, opened: list[int]) -> None:
    part.parent.mkdir(exist_ok=True)
    opened.append(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644))


def _write(fd: int, data: memoryview) -> None:
    while data:
        data = data[os.write(fd, data) :]


def _finish(fd: int, part: Path, path: Path) -> None:
    os.fsync(fd)
    part.replace(path)
    sync_directory(path.parent)
