"""Fetches the followed partitions of one leader: one connection, one request at a time.

| a round | |
|---|---|
| 1 new partitions | find where the logs diverge: by Fetch 12 or newer, with older leaders by OffsetForLeaderEpoch |
| 2 partitions out of range | ListOffsets: where the leader's log starts and ends |
| 3 a fetch | sends changes since the last one (`fetch_session_client`); the leader waits up to replica.fetch.wait.max.ms |
| 4 the response | is appended, partition by partition, in slices of the loop (`FollowerSlices`) |

**A fetch from an offset tells the leader that the log here has everything before that offset.** The next fetch is therefore sent
only after the last response has been appended. Otherwise the leader would count records as replicated that this broker does not
have.

An error of one partition delays or fails only that partition (`followed_partition`). After a lost connection or an invalid
response all partitions wait, a little longer each time. The rules and their order are those of Kafka's AbstractFetcherThread.

Use only on the event loop's thread. Partitions may be added or removed during each `await`, so each is looked up again before it
is changed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from time import perf_counter
from typing import NamedTuple

from tidelog.broker.loop.retry_log import RetryLog
from tidelog.broker.peers.channel import Channel
from tidelog.broker.peers.metadata_plane import MetadataPlane
from tidelog.broker.replicas.following.fetch_session_client import FetchSessionClient
from tidelog.broker.replicas.following.followed_partition import FIRST_RETRY_S, Followed, FollowedPartition, FollowerState
from tidelog.broker.replicas.following.followed_partitions import FollowedPartitions
from tidelog.broker.replicas.following.leader_answers import LeaderAnswers
from tidelog.broker.replicas.following.leader_ends import ask_ends, ask_epoch_ends
from tidelog.broker.replicas.replication_quota import ReplicationQuota
from tidelog.broker.requests.slices import SLICE_S
from tidelog.broker.settings.cluster_config import ClusterConfig
from tidelog.errors import TidelogError
from tidelog.model import TopicPartition
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.fetch import FetchRequest, FetchResponse, ReplicaState
from tidelog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

logger = logging.getLogger("tidelog.broker")

MAX_FETCH_VERSION = 17
FIRST_WITH_DIVERGING_EPOCH = 12
FIRST_WITH_REPLICA_STATE = 15

SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)


class FollowerSlices:
    """Runs the fetchers' work in slices of a few milliseconds, one per turn of the loop. Shared by all fetchers of a broker. Use
    only on the event loop's thread.

    If ten leaders answer with 10 MB each, their responses are processed in slices, one after the other, with all other work in
    between. So ten leaders block a turn of the loop no longer than one leader does. Client requests have their own slices
    (`requests.slices`).
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def run(self, steps: Iterator[object]) -> None:
        """Run all `steps`, as many per slice as fit. Other work may change state between two steps. Raises what the steps
        raise.
        """
        is_over = False
        while not is_over:
            async with self._lock:
                began = perf_counter()
                for _ in steps:
                    if perf_counter() - began >= SLICE_S:
                        break
                else:
                    is_over = True
            if not is_over:
                await asyncio.sleep(0)


class Shared(NamedTuple):
    """State shared by all fetchers of a broker."""

    plane: MetadataPlane
    config: ClusterConfig
    quota: ReplicationQuota
    turns: FollowerSlices
    moved: Callable[[TopicPartition], None]
    """Called when a log has gained or lost readable records."""
    log: RetryLog
    """Logs failures of single partitions, at a limited rate."""
    connect: Callable[..., Channel] = Channel


class LeaderFetcher:
    """Follows one leader. `index` is the number of its connection to the leader, below num.replica.fetchers."""

    def __init__(self, leader_id: int, index: int, shared: Shared) -> None:
        self.leader_id = leader_id
        self._client_id = f"broker-{shared.plane.node_id}-fetcher-{index}"
        self._shared = shared
        self._backoff_s = shared.config.replica_fetch_backoff_ms / 1000
        self._log = RetryLog(logger)
        self._session = FetchSessionClient(shared.config.replica_fetch_max_bytes, self._log, f"broker {leader_id}")
        self._followed = FollowedPartitions(shared.quota, self._backoff_s)
        self._answers = LeaderAnswers(leader_id, self._followed, shared.quota, shared.log, shared.moved, _now_s)
        self._wake = asyncio.Event()
        self._channel: Channel | None = None
        self._failures = 0
        self._task: asyncio.Task[None] | None = None

    # --- partitions

    @property
    def partitions(self) -> dict[TopicPartition, FollowedPartition]:
        return self._followed.by_key

    @property
    def appended_bytes(self) -> int:
        """Bytes of records appended so far."""
        return self._answers.appended_bytes

    def follow(self, followed: Followed) -> None:
        """Follow a partition, or follow it in a different epoch. No-op if nothing changes."""
        if self._followed.follow(followed):
            self._wake.set()

    def leave(self, key: TopicPartition) -> None:
        """Stop following a partition. Idempotent."""
        if self._followed.leave(key):
            self._wake.set()

    # --- running

    def start(self) -> None:
        """Start fetching. Idempotent."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run(), name=f"fetching from broker {self.leader_id}")

    async def stop(self) -> None:
        """Stop fetching. Later responses are ignored. Idempotent."""
        for key in tuple(self.partitions):
            self.leave(key)
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if self._channel is not None:
            self._channel.close()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            try:
                await self._round()
            except TidelogError as error:
                await self._failed(str(error))
            except Exception as error:
                logger.exception("fetching from broker %d failed", self.leader_id)
                await self._failed(repr(error))

    async def _round(self) -> None:
        channel = self._reachable()
        if channel is None:
            await self._pause(self._backoff_s)
            return
        await channel.connect()
        version = min(channel.version_of(FetchRequest), MAX_FETCH_VERSION)
        if self._followed.has_unsettled:
            await self._truncate(channel, version)
            await self._find_range(channel)
        self._followed.choose(self._session, _now_s())
        asked = self._session.request(version)
        if asked.is_empty:
            await self._pause(self._followed.due_s(_now_s()))
            return
        config, plane = self._shared.config, self._shared.plane
        request = FetchRequest(
            max_wait_ms=self._wait_ms(),
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=asked.session_id,
            session_epoch=asked.session_epoch,
            topics=asked.topics,
            forgotten_topics_data=asked.forgotten,
        )
        if version >= FIRST_WITH_REPLICA_STATE:
            request.replica_state = ReplicaState(plane.node_id, plane.broker_epoch)
        else:
            request.replica_id = plane.node_id
        try:
            response: FetchResponse = await channel.call(request, version=version)
        except BaseException:
            self._session.failed()
            raise
        answers = self._session.answered(response)
        if answers is None:
            # A restarted leader does not know the session: that is not a failure.
            is_usual = response.error_code in SESSION_ERRORS and not self._failures
            await self._failed(
                f"error {response.error_code} for all partitions", response.throttle_time_ms / 1000, is_usual=is_usual
            )
            return
        await self._shared.turns.run(self._answers.take(answers, self._session.told))
        self._failures = 0
        self._log.works("fetching from broker %d works again", self.leader_id)

    def _reachable(self) -> Channel | None:
        """Return the channel to the leader, with a new connection if the leader's address has changed. Return None while the
        address is unknown.
        """
        place = self._shared.plane.endpoint(self.leader_id)
        channel = self._channel
        if channel is not None and place != (channel.host, channel.port):
            channel.close()
            self._channel = channel = None
            self._session.failed()
        if channel is None and place is not None:
            timeout_s = self._shared.config.replica_socket_timeout_ms / 1000
            self._channel = channel = self._shared.connect(*place, client_id=self._client_id, timeout_s=timeout_s)
        return channel

    async def _failed(self, reason: str, at_least_s: float = 0, *, is_usual: bool = False) -> None:
        if not is_usual:
            self._log.failed("fetching from broker %d: %s; retrying", self.leader_id, reason)
        wait_s = min(FIRST_RETRY_S * 2 ** min(self._failures, 30), self._backoff_s)
        self._failures += 1
        await asyncio.sleep(max(wait_s, at_least_s))

    async def _pause(self, wait_s: float | None) -> None:
        """Wait until partitions are added or removed, or until the given time in seconds has passed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._wake.wait()

    def _wait_ms(self) -> int:
        """Return the fetch's `max_wait_ms`: the leader must answer before the next paused partition is due."""
        due_s = self._followed.due_s(_now_s())
        most_ms = self._shared.config.replica_fetch_wait_max_ms
        return most_ms if due_s is None else min(most_ms, int(due_s * 1000) + 1)

    # --- before a fetch

    async def _truncate(self, channel: Channel, version: int) -> None:
        """Find where the logs of new partitions diverge from the leader's, and truncate them there."""
        asking: list[tuple[FollowedPartition, int]] = []
        begin = self._answers.begin(
            self._followed.waiting(FollowerState.TRUNCATING, _now_s()),
            fetch_tells=version >= FIRST_WITH_DIVERGING_EPOCH,
            knows_epochs=channel.offers(OffsetForLeaderEpochRequest),
            asking=asking,
        )
        await self._shared.turns.run(begin)
        if asking:
            ends = await ask_epoch_ends(channel, self._shared.plane.node_id, asking)
            await self._shared.turns.run(self._answers.truncate(asking, ends))

    async def _find_range(self, channel: Channel) -> None:
        """Let partitions whose offset the leader lacks continue within the range of its log."""
        found = self._followed.waiting(FollowerState.OUT_OF_RANGE, _now_s())
        if found:
            ends = await ask_ends(channel, self._shared.plane.node_id, found)
            await self._shared.turns.run(self._answers.find_range(found, ends))


def _now_s() -> float:
    return asyncio.get_running_loop().time()
