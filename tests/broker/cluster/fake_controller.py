"""A controller for tests, on the test's own loop: a metadata log, a snapshot, registrations, as the test wants them.

It speaks Kafka's protocol over a socket of 127.0.0.1; several may be in one `FakeQuorum`, of which one leads.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Callable
from typing import Any

from tidelog.broker.cluster.kraft.metadata_fetcher import METADATA_TOPIC_ID
from tidelog.metadata.batches import build_batch, build_control_batch, build_snapshot
from tidelog.metadata.control_records import LeaderChangeMessage
from tidelog.metadata.frame import encode_record
from tidelog.metadata.image import MetadataImage
from tidelog.metadata.versions import record_version
from tidelog.model import METADATA_TOPIC
from tidelog.records.batch import iter_headers
from tidelog.wire.codec import Message, decode
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import REQUESTS
from tidelog.wire.headers import read_request_header, response_chunks
from tidelog.wire.messages import fetch as f
from tidelog.wire.messages import fetch_snapshot as s
from tidelog.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from tidelog.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from tidelog.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from tidelog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from tidelog.wire.messages.broker_registration import BrokerRegistrationRequest
from tidelog.wire.messages.envelope import EnvelopeRequest

LEVEL = 21
CLUSTER_ID = "AAAAAAAAQQCQAAAAAAAAAg"

SERVED = (
    f.FetchRequest,
    s.FetchSnapshotRequest,
    BrokerRegistrationRequest,
    BrokerHeartbeatRequest,
    AllocateProducerIdsRequest,
    AssignReplicasToDirsRequest,
    EnvelopeRequest,
    ApiVersionsRequest,
)


def values_of(records: list[Message]) -> list[bytes]:
    return [encode_record(record, record_version(type(record), LEVEL)) for record in records]


class FakeQuorum:
    """The log that the controllers share: batches, how far it is committed, who leads in which epoch."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.start_offset = 0
        self.end_offset = 0
        self.high_watermark = 0
        self.epoch = 1
        self.leader_id = 3000
        self.snapshot: tuple[int, int, bytes] | None = None
        self.controllers: dict[int, FakeController] = {}
        self.changed = asyncio.Event()
        self.append_control()

    def append(self, *records: Message, commit: bool = True) -> None:
        self._add(build_batch(values_of(list(records)), self.end_offset, self.epoch, 0), len(records), commit)

    def append_control(self) -> None:
        message = LeaderChangeMessage(0, self.leader_id)
        self._add(build_control_batch(message, self.end_offset, self.epoch, 0), 1, True)

    def _add(self, batch: bytes, count: int, commit: bool) -> None:
        self.batches.append(batch)
        self.end_offset += count
        if commit:
            self.commit()
        self.wake()

    def commit(self) -> None:
        self.high_watermark = self.end_offset
        self.wake()

    def cut(self, end_offset: int) -> None:
        """Lose what was not committed, as an election may."""
        while self.end_offset > end_offset:
            (header,) = iter_headers(self.batches.pop())
            self.end_offset = header.base_offset

    def elect(self, leader_id: int) -> None:
        self.leader_id = leader_id
        self.epoch += 1
        self.append_control()

    def take_snapshot(self, image: MetadataImage) -> None:
        """Begin the log after a snapshot of all that is in it."""
        data = b"".join(build_snapshot(list(image.to_values()), self.epoch, 0))
        self.snapshot = self.end_offset, self.epoch, data
        self.start_offset, self.batches = self.end_offset, []

    def wake(self) -> None:
        self.changed.set()
        self.changed = asyncio.Event()

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The last epoch at or below one, and where it ends."""
        found = (0, self.start_offset)
        for batch in self.batches:
            (header,) = iter_headers(batch)
            if header.leader_epoch <= epoch:
                found = header.leader_epoch, header.next_offset
        return found


class FakeController:
    """One controller. `answers` are what it says to requests by class: a message, or a function of the request."""

    def __init__(self, quorum: FakeQuorum, node_id: int = 3000) -> None:
        self.quorum = quorum
        self.node_id = node_id
        self.answers: dict[type[Message], Callable[[Any], Message | None] | Message] = {}
        self.seen: list[Message] = []
        self.features: dict[str, tuple[int, int, int]] = {"metadata.version": (1, 25, LEVEL), "kraft.version": (0, 1, 0)}
        self.is_deaf = False
        self.port = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None] | None] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        quorum.controllers[node_id] = self

    async def start(self) -> FakeController:
        self._server = await asyncio.start_server(self._served, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for writer in list(self._writers):
            writer.transport.abort()
        self.quorum.wake()
        tasks = [task for task in self._tasks if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def requests(self, kind: type[Message]) -> list[Any]:
        return [one for one in self.seen if type(one) is kind]

    async def _served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
                while True:
                    (size,) = struct.unpack(">i", await reader.readexactly(4))
                    await self._answer(await reader.readexactly(size), writer)
        finally:
            self._tasks.discard(task)
            self._writers.discard(writer)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _answer(self, frame: bytes, writer: asyncio.StreamWriter) -> None:
        header, position = read_request_header(frame)
        kind = REQUESTS[header.api_key]
        request = decode(kind, header.api_version, frame, position)
        if kind is not ApiVersionsRequest:
            self.seen.append(request)
        while self.is_deaf:
            await self.quorum.changed.wait()
        answer = self.answers.get(kind)
        if callable(answer):
            answer = answer(request)
        if answer is None:
            answer = await self._usual(request)
        if answer is not None:
            writer.writelines(response_chunks(answer, header.api_version, header.correlation_id))

    async def _usual(self, request: Any) -> Message | None:
        if isinstance(request, ApiVersionsRequest):
            return ApiVersionsResponse(
                api_keys=[ApiVersion(one.API_KEY, one.VERSIONS[0], min(one.VERSIONS[-1], 17)) for one in SERVED],
                supported_features=[SupportedFeatureKey(name, low, high) for name, (low, high, _) in self.features.items()],
                finalized_features=[FinalizedFeatureKey(name, level, level) for name, (_, _, level) in self.features.items()],
            )
        if isinstance(request, f.FetchRequest):
            return await self._fetch(request)
        if isinstance(request, s.FetchSnapshotRequest):
            return self._fetch_snapshot(request)
        return None

    @property
    def _leader(self) -> f.LeaderIdAndEpoch:
        return f.LeaderIdAndEpoch(self.quorum.leader_id, self.quorum.epoch)

    async def _fetch(self, request: f.FetchRequest) -> f.FetchResponse:
        quorum = self.quorum
        (wanted,) = request.topics[0].partitions
        data = f.PartitionData(0, current_leader=self._leader, records=b"", high_watermark=-1)
        nodes = [f.NodeEndpoint(one.node_id, "127.0.0.1", one.port) for one in quorum.controllers.values()]
        response = f.FetchResponse(responses=[f.FetchableTopicResponse("", METADATA_TOPIC_ID, [data])], node_endpoints=nodes)
        if request.cluster_id not in (None, CLUSTER_ID):
            return f.FetchResponse(error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        if not 0 <= wanted.last_fetched_epoch <= wanted.current_leader_epoch:
            data.error_code = ErrorCode.INVALID_REQUEST
            return response
        if wanted.current_leader_epoch != quorum.epoch:
            is_old = wanted.current_leader_epoch < quorum.epoch
            data.error_code = ErrorCode.FENCED_LEADER_EPOCH if is_old else ErrorCode.UNKNOWN_LEADER_EPOCH
            return response
        if self.node_id != quorum.leader_id:
            data.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return response
        data.high_watermark = quorum.high_watermark
        if wanted.fetch_offset < quorum.start_offset and quorum.snapshot is not None:
            data.snapshot_id = f.SnapshotId(*quorum.snapshot[:2])
            return response
        epoch, end = quorum.end_of_epoch(wanted.last_fetched_epoch)
        if (
            quorum.batches
            and wanted.fetch_offset > quorum.start_offset
            and (epoch != wanted.last_fetched_epoch or end < wanted.fetch_offset)
        ):
            data.diverging_epoch = f.EpochEndOffset(epoch, end)
            return response
        if wanted.fetch_offset >= quorum.end_offset:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(quorum.changed.wait(), request.max_wait_ms / 1000)
            if self.node_id != quorum.leader_id:
                data.error_code, data.current_leader = ErrorCode.NOT_LEADER_OR_FOLLOWER, self._leader
                return response
        data.high_watermark = quorum.high_watermark
        data.records = b"".join(one for one in quorum.batches if next(iter_headers(one)).last_offset >= wanted.fetch_offset)
        return response

    def _fetch_snapshot(self, request: s.FetchSnapshotRequest) -> s.FetchSnapshotResponse:
        (wanted,) = request.topics[0].partitions
        assert self.quorum.snapshot is not None
        end_offset, epoch, data = self.quorum.snapshot
        assert (wanted.snapshot_id.end_offset, wanted.snapshot_id.epoch) == (end_offset, epoch)
        piece = data[wanted.position : wanted.position + min(request.max_bytes, 50_000)]
        result = s.PartitionSnapshotResult(
            0, snapshot_id=wanted.snapshot_id, size=len(data), position=wanted.position, unaligned_records=piece
        )
        return s.FetchSnapshotResponse(topics=[s.TopicSnapshotResult(METADATA_TOPIC, [result])])
