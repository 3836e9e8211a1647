"""Follows ``__cluster_metadata`` as an observer of the quorum (KIP-595): finds the leader, fetches, and replays committed
batches.

| the answer to a Fetch | what is done |
|---|---|
| names a leader of a newer epoch | the next request goes to that leader |
| records | those below the high watermark are replayed; the others wait, and the next Fetch follows soon |
| a diverging epoch | uncommitted batches after its end are dropped; committed ones never are |
| a snapshot's id | the leader no longer has the next records: the snapshot is fetched and replaces the image |
| … that is damaged, or cannot be written to disk | it is fetched again, and none of it is replayed |
| (no answer in time) | the leader is abandoned, and all controllers are asked in turn for the leader |

The first request has epoch 0. It is rejected, and the error response names the leader and its epoch. (Epoch -1 would be rejected
as an invalid request.)

The log is kept in memory only; `metadata_copy` writes snapshots of the replayed state.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tidelog.broker.cluster.kraft.controller_channel import Channels
from tidelog.broker.cluster.kraft.metadata_loader import MetadataLoader
from tidelog.broker.cluster.kraft.quorum import NO_LEADER, Address, Quorum
from tidelog.broker.cluster.kraft.snapshot_fetcher import Snapshot, SnapshotFetcher
from tidelog.broker.loop.retry_log import RetryLog
from tidelog.broker.peers.channel import Channel
from tidelog.errors import (
    BrokerError,
    BrokerUnreachableError,
    CorruptBatchError,
    CorruptDataError,
    InvalidArgumentError,
    InvalidRecordError,
    ProtocolError,
    SecurityProtocolError,
    StorageError,
    TidelogError,
    UnsupportedVersionError,
)
from tidelog.model import METADATA_TOPIC
from tidelog.reader.metadata_log import METADATA_TOPIC_ID
from tidelog.records.batch import BatchHeader, check_crc, iter_headers
from tidelog.wire.error_codes import ErrorCode, code_name
from tidelog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData, ReplicaState

logger = logging.getLogger("tidelog.broker")


MAX_WAIT_MS = 500
"""How long, in ms, the leader may delay its response when it has no new data (Kafka's value)."""

FIRST_WAIT_MS = 10
"""How long, in ms, the leader may delay its response while fetched records await their commit. Doubled with each request."""

MAX_FETCH_BYTES = 8 << 20
MAX_PENDING_BYTES = 64 << 20
"""Fetching pauses while at least this many bytes of committed records await replay."""

_REFUSED = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""Error codes of a controller that does not lead, is in another epoch, or is starting."""


class MetadataFetcher:
    """Follows the metadata log, in `run`. Use only on the event loop's thread."""

    def __init__(
        self,
        quorum: Quorum,
        channels: Channels,
        loader: MetadataLoader,
        snapshots: SnapshotFetcher,
        *,
        node_id: int,
        cluster_id: str,
        directory_id: uuid.UUID,
        retry_s: float,
        moved: Callable[[], None],
    ) -> None:
        """`moved` is called whenever `end_offset` or `high_watermark` advances."""
        self.end_offset = 0
        """All records below this offset are replayed."""
        self.end_epoch = 0
        """The epoch of the last replayed batch."""
        self.high_watermark = -1
        """The known high watermark; -1 before the first response."""
        self.is_between_batches = True
        """Whether the image matches `end_offset`: False during a replay, and after an interrupted replay."""
        self._quorum = quorum
        self._channels = channels
        self._loader = loader
        self._snapshots = snapshots
        self._node_id = node_id
        self._cluster_id = cluster_id
        self._directory_id = directory_id
        self._retry_s = retry_s
        self._moved = moved
        self._next_offset = 0
        self._epoch = 0
        """The end of the fetched log, committed or not, and the epoch of its last batch."""
        self._begun = 0, 0
        """The end offset and last epoch of the batches that are replayed or being replayed. These are never dropped or
        fetched again.
        """
        self._pending: deque[tuple[BatchHeader, memoryview]] = deque()
        self._pending_bytes = 0
        self._fetched: tuple[Path, Snapshot] | None = None
        """A fetched snapshot that is not loaded yet."""
        self._has_committed = asyncio.Event()
        self.replaying = asyncio.Lock()
        """Held while the image changes."""
        self._wait_ms = FIRST_WAIT_MS
        self._log = RetryLog(logger)

    @property
    def is_caught_up(self) -> bool:
        """Whether everything below the known high watermark is replayed."""
        return 0 <= self.high_watermark <= self.end_offset

    async def run(self) -> None:
        """Follow the log until cancelled.

        Raises InvalidArgumentError if the controllers belong to a different cluster, SecurityProtocolError, and what
        `MetadataLoader` raises: after any of these errors, this broker cannot continue.
        """
        applying = asyncio.ensure_future(self._apply())
        following = asyncio.ensure_future(self._follow())
        try:
            done, _ = await asyncio.wait({applying, following}, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in (applying, following):
                task.cancel()
            await asyncio.gather(applying, following, return_exceptions=True)

    async def _follow(self) -> None:
        while True:
            address = self._quorum.leader or self._candidate()
            try:
                is_answered = await self._ask(address)
            except (BrokerUnreachableError, ProtocolError, BrokerError, UnsupportedVersionError, StorageError) as error:
                self._lost(address, error)
                is_answered = False
            if self._fetched is not None:
                fetched, self._fetched = self._fetched, None
                is_answered = await self._load(address, *fetched)
            if not is_answered:
                await asyncio.sleep(self._retry_s)

    def _candidate(self) -> Address:
        """Return the next controller to ask for the leader, preferring those whose last request did not fail."""
        candidates = self._quorum.candidates()
        return next((one for one in candidates if not self._channels.to(one).backoff_s), candidates[0])

    async def _apply(self) -> None:
        """Replay committed batches as they arrive; fetching continues meanwhile."""
        while True:
            await self._has_committed.wait()
            self._has_committed.clear()
            async with self.replaying:
                committed = []
                while self._pending and self._pending[0][0].last_offset < self.high_watermark:
                    header, batch = self._pending.popleft()
                    committed.append((header, batch))
                if not committed:
                    continue
                self.is_between_batches = False
                self._begun = committed[-1][0].next_offset, committed[-1][0].leader_epoch
                await self._loader.apply(committed)
                self._pending_bytes -= sum(header.size for header, _ in committed)
                self.end_offset, self.end_epoch = self._begun
                self.is_between_batches = True
            voters = self._loader.voters
            if voters is not None:
                known = {one.voter_id: (one.endpoints[0].host, one.endpoints[0].port) for one in voters.voters if one.endpoints}
                self._quorum.learn_voters(known)
            self._moved()

    # --- one request

    async def _ask(self, address: Address) -> bool:
        """Send one Fetch. Return whether more records may be available immediately."""
        channel = self._channels.to(address)
        await channel.connect()
        version = channel.version_of(FetchRequest)
        response: FetchResponse = await channel.call(self._request(version), version=version)
        if response.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            message = "the controllers belong to a different cluster than the folder"
            raise InvalidArgumentError(message, path=str(address), expected=self._cluster_id)
        if response.error_code:
            raise BrokerError(
                "the controller returned no metadata",
                error_code=response.error_code,
                path=str(address),
                found=code_name(response.error_code),
            )
        if len(response.responses) != 1 or len(response.responses[0].partitions) != 1:
            raise ProtocolError("the response does not contain exactly the requested partition", path=str(address))
        (data,) = response.responses[0].partitions
        leader = data.current_leader
        nodes = {one.node_id: (one.host, one.port) for one in response.node_endpoints}
        # Only the leader answers without an error.
        if self._quorum.learn(leader.leader_id, leader.leader_epoch, nodes, is_by_leader=not data.error_code):
            if self._quorum.leader_id >= 0:
                logger.info("controller %d is active, epoch %d", self._quorum.leader_id, self._quorum.epoch)
            if self._quorum.leader != address:
                return self._quorum.leader is not None
        if data.error_code in _REFUSED:
            # If the epoch was news, the leader will accept the next request; otherwise other controllers may know more.
            return (
                leader.leader_epoch >= 0 and self._quorum.leader == address and data.error_code == ErrorCode.FENCED_LEADER_EPOCH
            )
        if data.error_code:
            raise BrokerError(
                "the controller returned no metadata",
                error_code=data.error_code,
                path=str(address),
                found=code_name(data.error_code),
            )
        self._log.works("the controllers answer again")
        await self._take(channel, data)
        return True

    def _request(self, version: int) -> FetchRequest:
        wanted = FetchPartition(
            partition=0,
            current_leader_epoch=self._quorum.epoch,
            fetch_offset=self._next_offset,
            last_fetched_epoch=self._epoch,
            log_start_offset=0,
            partition_max_bytes=MAX_FETCH_BYTES,
            replica_directory_id=self._directory_id,
            high_watermark=max(self.high_watermark, 0),
        )
        # Since version 18, the leader also answers when the high watermark advances (KIP-1166).
        is_soon = version < 18 and self._next_offset > self.high_watermark >= 0
        topic = FetchTopic(METADATA_TOPIC, METADATA_TOPIC_ID, [wanted])
        return FetchRequest(
            cluster_id=self._cluster_id,
            replica_id=self._node_id,
            replica_state=ReplicaState(self._node_id, -1),
            max_wait_ms=self._wait_ms if is_soon else MAX_WAIT_MS,
            min_bytes=1,
            max_bytes=MAX_FETCH_BYTES,
            topics=[topic],
        )

    # --- what it brought

    async def _take(self, channel: Channel, data: PartitionData) -> None:
        if data.snapshot_id.end_offset >= 0:
            snapshot = Snapshot(data.snapshot_id.end_offset, data.snapshot_id.epoch)
            self._fetched = await self._snapshots.fetch(channel, self._quorum.epoch, snapshot), snapshot
            return
        if data.diverging_epoch.end_offset >= 0:
            self._cut(data.diverging_epoch.end_offset, data.diverging_epoch.epoch)
            return
        before = self._next_offset, self.high_watermark
        self._keep(channel, data)
        self.high_watermark = max(self.high_watermark, data.high_watermark)
        is_news = before != (self._next_offset, self.high_watermark)
        self._wait_ms = FIRST_WAIT_MS if is_news else min(2 * self._wait_ms, MAX_WAIT_MS)
        self._has_committed.set()
        self._moved()
        while self._pending_bytes >= MAX_PENDING_BYTES and self.high_watermark >= self._next_offset:
            # The replay is behind: fetched batches must not pile up.
            async with self.replaying:
                pass
            await asyncio.sleep(0)

    def _keep(self, channel: Channel, data: PartitionData) -> None:
        """Queue fetched batches; they are in log order, without a gap."""
        if not data.records:
            return
        for header in iter_headers(data.records):
            if header.next_offset <= self._next_offset:
                continue
            if header.base_offset > self._next_offset or header.magic != 2:
                found = f"offset {header.base_offset}"
                raise ProtocolError(
                    "records are missing from the fetched metadata",
                    path=channel.place,
                    found=found,
                    expected=f"offset {self._next_offset}",
                )
            batch = data.records[header.position : header.position + header.size]
            try:
                check_crc(header, batch)
            except CorruptBatchError as error:
                raise ProtocolError(f"the fetched metadata is damaged: {error.message}", path=channel.place) from None
            self._pending.append((header, batch))
            self._pending_bytes += header.size
            self._next_offset, self._epoch = header.next_offset, header.leader_epoch

    def _cut(self, end_offset: int, epoch: int) -> None:
        """Drop uncommitted batches at and after `end_offset`. `epoch` is the leader's largest epoch that is not above ours."""
        committed = max(self.high_watermark, self._begun[0])
        if end_offset < min(committed, self._next_offset):
            raise CorruptDataError(
                "the controllers have lost committed metadata on which this broker has acted, so it cannot continue",
                found=f"offset {end_offset}",
                expected=f"offset {committed} or more",
            )
        while self._pending and self._pending[-1][0].last_offset >= end_offset:
            self._pending_bytes -= self._pending.pop()[0].size
        if self._pending:
            self._next_offset, self._epoch = self._pending[-1][0].next_offset, self._pending[-1][0].leader_epoch
        else:
            self._next_offset, self._epoch = self._begun[0], min(epoch, self._epoch)

    async def _load(self, address: Address, path: Path, snapshot: Snapshot) -> bool:
        """Load a fetched snapshot. Return False if the snapshot has to be fetched again. Raises InvalidRecordError,
        UnsupportedVersionError and ProtocolError, after which the broker cannot continue.
        """
        try:
            await self.begin_with(path, snapshot)
        except InvalidRecordError:
            raise  # The snapshot is complete, but its content is invalid.
        except (CorruptDataError, StorageError) as error:
            with suppress(OSError):
                path.unlink()
            self._lost(address, error)
            return False
        self.high_watermark = max(self.high_watermark, snapshot.end_offset)
        logger.info(
            "loaded a metadata snapshot that ends at offset %d, with %d topics",
            snapshot.end_offset,
            len(self._loader.image.topics),
        )
        self._moved()
        return True

    async def begin_with(self, path: Path, snapshot: Snapshot) -> None:
        """Replace the metadata by a snapshot's, and continue at the snapshot's end. Raises what `MetadataLoader.load_snapshot`
        raises; then nothing is changed.
        """
        async with self.replaying:
            await self._loader.load_snapshot(path)
            self._pending.clear()
            self._pending_bytes = 0
            self.end_offset, self.end_epoch = self._next_offset, self._epoch = self._begun = snapshot
            # A request with an older epoch than the log's is invalid.
            self._quorum.learn(NO_LEADER, snapshot.epoch)

    def _lost(self, address: Address, error: TidelogError) -> None:
        if isinstance(error, SecurityProtocolError):
            raise error
        if self._quorum.leader == address:
            self._quorum.give_up_leader()
        self._log.failed("waiting for the controllers (%s): %s", self._quorum, error)
