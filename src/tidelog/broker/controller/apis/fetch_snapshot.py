"""FetchSnapshot (59): returns bytes of a snapshot of the metadata log (KIP-630)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from tidelog.broker.controller.registrations import of_brokers
from tidelog.broker.handling.api import Api
from tidelog.broker.node import Node
from tidelog.broker.requests.request import Request
from tidelog.broker.requests.slices import Elsewhere, Work
from tidelog.formats.files import ReadOnlyFile
from tidelog.model import METADATA_TOPIC
from tidelog.reader.metadata_log import list_snapshots
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import Versions
from tidelog.wire.messages.fetch_snapshot import (
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderIdAndEpoch,
    PartitionSnapshotResult,
    SnapshotId,
    TopicSnapshotResult,
)

MOST_BYTES = 1 << 20
"""The most bytes of a snapshot in one response."""


def handle(node: Node, message: FetchSnapshotRequest, request: Request) -> Work:
    """Return bytes of a snapshot, starting at the requested position."""
    if len(message.topics) != 1 or len(message.topics[0].partitions) != 1 or message.topics[0].name != METADATA_TOPIC:
        return FetchSnapshotResponse(error_code=ErrorCode.INVALID_REQUEST)
    (wanted,) = message.topics[0].partitions
    store = node.manager.metadata
    most = min(message.max_bytes, MOST_BYTES)
    piece = yield Elsewhere(partial(_piece, store.log_folder, wanted.snapshot_id, wanted.position, most))
    if piece is None:
        return FetchSnapshotResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    size, data = piece
    leader = LeaderIdAndEpoch(node.node_id, store.epoch)
    result = PartitionSnapshotResult(0, ErrorCode.NONE, wanted.snapshot_id, leader, size, wanted.position, data)
    return FetchSnapshotResponse(topics=[TopicSnapshotResult(METADATA_TOPIC, [result])])


def _piece(folder: Path, wanted: SnapshotId, position: int, most: int) -> tuple[int, bytes] | None:
    """Return a snapshot's size and bytes of it, or None if the snapshot no longer exists. Raises StorageError."""
    for one in list_snapshots(folder):
        if (one.end_offset, one.epoch) == (wanted.end_offset, wanted.epoch):
            with ReadOnlyFile(one.path, fallbacks=()) as file:
                return file.size_bytes(), file.read(position, most)
    return None


API = Api(FetchSnapshotRequest, FetchSnapshotResponse, Versions(0, 1), of_brokers(FetchSnapshotResponse), handle)
