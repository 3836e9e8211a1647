"""A leader as Kafka's rules have it, over logs of our own, and ways to it that lose what they are to lose.

Requests and answers go through the protocol's bytes, so a follower gets views of a frame, as from a socket.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.patience import PATIENCE_S
from tests.storage.partition_logs import batch, open_log
from tidelog.broker.fetch.fetch_sessions import NO_SESSION, FetchedPartition, FetchSession, FetchSessions
from tidelog.broker.replicas.fetchers import Fetchers, Followed
from tidelog.broker.replicas.following.followed_partition import FollowedPartition, FollowerState
from tidelog.broker.replicas.replication_quota import NO_LIMIT
from tidelog.broker.settings.cluster_config import ClusterConfig
from tidelog.clock import ManualClock
from tidelog.errors import BrokerUnreachableError, OffsetOutOfRangeError
from tidelog.model import EARLIEST, LATEST, TopicPartition
from tidelog.storage.partition.partition_log import PartitionLog
from tidelog.storage.partition.watermarks import FetchIsolation
from tidelog.wire.codec import decode, encode
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.fields import RESPONSES, Message
from tidelog.wire.messages.fetch import EpochEndOffset, FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from tidelog.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tidelog.wire.messages.offset_for_leader_epoch import EpochEndOffset as EpochEnd
from tidelog.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)

LEADER, FOLLOWER = 1, 2


@dataclass
class Led:
    """A partition that the leader leads; `errors` are what it answers next, whatever is asked."""

    log: PartitionLog
    epoch: int
    topic_id: uuid.UUID
    errors: list[int]
    high_watermark: int | None = None
    fetched: int = -1
    """The offset that was asked for last."""


def equal_logs(folder: Path, epochs: Sequence[int], *, committed: int) -> tuple[PartitionLog, PartitionLog]:
    """Return two logs of the same batches, one of two records for each leader epoch."""
    logs = []
    for name in ("first", "second"):
        (folder / name).mkdir()
        log = open_log(folder / name, topic_id=None)
        for epoch in epochs:
            log.append_as_leader(batch(count=2), epoch)
        log.update_high_watermark(committed)
        logs.append(log)
    return logs[0], logs[1]


class SimulatedLeader:
    def __init__(self, *, slots: int = 10) -> None:
        self.led: dict[TopicPartition, Led] = {}
        self.sessions = FetchSessions(ManualClock(0), slots)
        self.requests: list[tuple[Message, int]] = []
        self.answer: Callable[[Message], Message | None] = lambda request: None
        """What is answered instead, None: what the rules say."""
        self.changed = asyncio.Event()

    def lead(self, key: TopicPartition, log: PartitionLog, epoch: int, topic_id: uuid.UUID | None = None) -> Led:
        log.maybe_assign_epoch_start_offset(epoch, log.log_end_offset)
        self.led[key] = Led(log, epoch, topic_id or uuid.uuid5(uuid.NAMESPACE_DNS, key.topic), [])
        return self.led[key]

    def followed(self, key: TopicPartition, log: PartitionLog, epoch: int | None = None) -> Followed:
        led = self.led[key]
        return Followed(key, led.topic_id, log, led.epoch if epoch is None else epoch)

    async def handle(self, request: Message, version: int) -> Message:
        self.requests.append((request, version))
        instead = self.answer(request)
        if instead is not None:
            return instead
        if isinstance(request, ListOffsetsRequest):
            return self._list_offsets(request)
        if isinstance(request, OffsetForLeaderEpochRequest):
            return self._epoch_ends(request)
        assert isinstance(request, FetchRequest)
        return await self._fetch(request, version)

    # --- Fetch

    async def _fetch(self, request: FetchRequest, version: int) -> FetchResponse:
        replica = request.replica_state.replica_id if version >= 15 else request.replica_id
        assert replica == FOLLOWER
        by_id = version >= 13
        parts: dict[Any, FetchedPartition] = {}
        for topic in request.topics:
            for part in topic.partitions:
                name = (topic.topic_id if by_id else topic.topic, part.partition)
                assert name not in parts, "a partition is named twice"
                parts[name] = FetchedPartition(name, self._key(name), topic.topic_id, part)
        session: FetchSession | None = None
        if request.session_epoch > 0:
            found = self.sessions.get(request.session_id, request.session_epoch, uses_topic_ids=by_id)
            if not isinstance(found, FetchSession):
                return FetchResponse(error_code=found)
            session = found
            self.sessions.touch(session)
            for forgotten in request.forgotten_topics_data:
                for number in forgotten.partitions:
                    session.partitions.pop((forgotten.topic_id if by_id else forgotten.topic, number), None)
            session.partitions.update(parts)
            parts = session.partitions
        else:
            self.sessions.remove(request.session_id)
        for name, part in parts.items():
            if part.key is None:
                part.key = self._key(name)
            if part.key is not None:
                self.led[part.key].fetched = part.fetch_offset
        answers = self._read(parts, version, request.max_bytes)
        if request.max_wait_ms > 0 and not any(
            len(a.records) or a.error_code or a.diverging_epoch.epoch >= 0 for a in answers.values()
        ):
            self.changed.clear()
            try:
                async with asyncio.timeout(request.max_wait_ms / 1000):
                    await self.changed.wait()
            except TimeoutError:
                pass
            answers = self._read(parts, version, request.max_bytes)
        session_id = NO_SESSION
        if session is not None:
            session_id = session.id
            answers = {name: one for name, one in answers.items() if parts[name].is_news(one, len(one.records))}
        elif request.session_epoch == 0:
            for name, one in answers.items():
                parts[name].answered(one)
            session_id = self.sessions.create(parts, is_privileged=True, uses_topic_ids=by_id)
        topics: dict[Any, FetchableTopicResponse] = {}
        for (topic_name, _), one in answers.items():
            if topic_name not in topics:
                topics[topic_name] = FetchableTopicResponse()
                setattr(topics[topic_name], "topic_id" if by_id else "topic", topic_name)
            topics[topic_name].partitions.append(one)
        return FetchResponse(session_id=session_id, responses=list(topics.values()))

    def _key(self, name: tuple[Any, int]) -> TopicPartition | None:
        for key, led in self.led.items():
            if name in ((led.topic_id, key.partition), (key.topic, key.partition)):
                return key
        return None

    def _read(self, parts: dict[Any, FetchedPartition], version: int, max_bytes: int) -> dict[Any, PartitionData]:
        answers = {}
        left, is_first = max_bytes, True
        for name, wanted in parts.items():
            one = answers[name] = self._read_one(wanted, version, left, is_first)
            is_first = is_first and not len(one.records)
            left = max(left - len(one.records), 0)
        return answers

    def _read_one(self, wanted: FetchedPartition, version: int, max_bytes: int, is_first: bool) -> PartitionData:
        answer = PartitionData(wanted.name[1], high_watermark=-1, records=b"")
        if wanted.key is None or wanted.key not in self.led:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID if version >= 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            return answer
        led = self.led[wanted.key]
        error = self._refusal(led, wanted.leader_epoch)
        if error:
            answer.error_code = error
            return answer
        log = led.log
        answer.high_watermark = log.high_watermark if led.high_watermark is None else led.high_watermark
        answer.log_start_offset = log.log_start_offset
        if version >= 12 and wanted.last_fetched_epoch >= 0:
            end = log.end_offset_for_epoch(wanted.last_fetched_epoch)
            if end is None:
                answer.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
                return answer
            if end[0] < wanted.last_fetched_epoch or end[1] < wanted.fetch_offset:
                answer.diverging_epoch = EpochEndOffset(*end)
                return answer
        try:
            data = log.read(wanted.fetch_offset, min(max_bytes, wanted.max_bytes), FetchIsolation.LOG_END, is_first)
        except OffsetOutOfRangeError:
            answer.error_code, answer.high_watermark = ErrorCode.OFFSET_OUT_OF_RANGE, -1
            return answer
        answer.records = b"" if data.first_entry_incomplete else bytes(data.data)
        return answer

    def _refusal(self, led: Led, epoch: int) -> int:
        if led.errors:
            return led.errors.pop(0)
        if epoch >= 0 and epoch != led.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH if epoch < led.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        return 0

    # --- the others

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = []
        for topic in request.topics:
            ones = []
            for part in topic.partitions:
                led = self.led[TopicPartition(topic.name, part.partition_index)]
                error = self._refusal(led, part.current_leader_epoch)
                offset = {LATEST: led.log.log_end_offset, EARLIEST: led.log.log_start_offset}[part.timestamp]
                ones.append(ListOffsetsPartitionResponse(part.partition_index, error, [], -1, -1 if error else offset))
            topics.append(ListOffsetsTopicResponse(topic.name, ones))
        return ListOffsetsResponse(topics=topics)

    def _epoch_ends(self, request: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        topics = []
        for topic in request.topics:
            ones = []
            for part in topic.partitions:
                led = self.led[TopicPartition(topic.topic, part.partition)]
                error = self._refusal(led, part.current_leader_epoch)
                end = None if error else led.log.end_offset_for_epoch(part.leader_epoch)
                ones.append(EpochEnd(error, part.partition, *(end or (-1, -1))))
            topics.append(OffsetForLeaderTopicResult(topic.topic, ones))
        return OffsetForLeaderEpochResponse(topics=topics)


class SimulatedChannel:
    """A way to a simulated leader, in the place of a `Channel`."""

    def __init__(self, leader: SimulatedLeader, versions: dict[type[Message], int], **place: Any) -> None:
        self.leader = leader
        self.versions = versions
        self.host, self.port = place["host"], place["port"]
        self.is_closed = False
        self.losing = 0
        """So many requests fail: by turns before and after the leader has had them."""

    async def connect(self, timeout_s: float | None = None) -> None:
        await asyncio.sleep(0)
        if self.is_closed:
            raise BrokerUnreachableError("closed", path=self.host)

    def offers(self, request: type[Message], version: int = 0) -> bool:
        return self.versions.get(request, request.VERSIONS[-1]) >= version

    def version_of(self, request: type[Message]) -> int:
        return min(self.versions.get(request, request.VERSIONS[-1]), request.VERSIONS[-1])

    async def call(self, request: Message, *, version: int | None = None, timeout_s: float | None = None) -> Message:
        if version is None:
            version = self.version_of(type(request))
        assert self.offers(type(request), version)
        self.losing -= self.losing > 0
        if self.losing % 2:
            raise BrokerUnreachableError("lost on the way", path=self.host)
        sent = decode(type(request), version, memoryview(b"".join(encode(request, version))))
        answer = await self.leader.handle(sent, version)
        if self.losing:
            raise BrokerUnreachableError("lost on the way back", path=self.host)
        frame = memoryview(bytearray(b"".join(encode(answer, version))))
        return decode(RESPONSES[request.API_KEY], version, frame)

    def close(self) -> None:
        self.is_closed = True


class Simulation:
    """A broker that follows simulated leaders, by their ids."""

    def __init__(self, *leaders: SimulatedLeader, fetch_version: int = 17, versions: Any = (), **properties: int) -> None:
        self.leaders = dict(enumerate(leaders, LEADER)) if len(leaders) < 2 else dict(enumerate(leaders, 11))
        self.places = {number: (f"leader-{number}", 9092) for number in self.leaders}
        self.channels: list[SimulatedChannel] = []
        self.moved: list[TopicPartition] = []
        self.throttled_rate = NO_LIMIT
        settings = {"replica_fetch_wait_max_ms": 20, "replica_fetch_backoff_ms": 5, **properties}
        self.config = ClusterConfig(node_id=FOLLOWER, controller_listener_names=("C",), **settings)
        self._versions = {FetchRequest: fetch_version, **dict(versions)}
        node: Any = SimpleNamespace(
            config=SimpleNamespace(cluster=self.config),
            delayed_fetches=SimpleNamespace(appended=self.moved.append),
            dynamic_settings=SimpleNamespace(throttled_rate=lambda name: self.throttled_rate),
        )
        plane: Any = SimpleNamespace(node_id=FOLLOWER, broker_epoch=7, endpoint=self.places.get)
        self.fetchers = Fetchers(node, plane, connect=self._connect)

    @property
    def failed(self) -> list[FollowedPartition]:
        """The partitions that have failed, and are not followed until their next leader epoch."""
        return [one for one in self.fetchers.partitions() if one.state is FollowerState.FAILED]

    def _connect(self, host: str, port: int, **_: Any) -> Any:
        number = int(host.split("-")[1])
        channel = SimulatedChannel(self.leaders[number], self._versions, host=host, port=port)
        self.channels.append(channel)
        return channel

    async def __aenter__(self) -> Simulation:
        self.fetchers.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.fetchers.stop()


async def until(condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
    """Let the loop go round until something is so."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.001)
