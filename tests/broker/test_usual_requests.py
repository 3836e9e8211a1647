"""Usual requests are answered without messages (`dispatch.usual_api`), all others with them: both answer and change the same.

Two brokers get the same bytes: usual requests, unusual ones, damaged ones. One of them has no short way, and appends no
batch in one call.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.broker.conftest import RunningBroker
from tests.broker.groups.members import Member
from tests.broker.groups.offset_requests import Offset, commit
from tests.broker.raw import RawClient
from tests.examples import examples
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tests.storage.partition_logs import batch
from tidelog.broker.dispatch.dispatcher import APIS
from tidelog.broker.handling.api import Api
from tidelog.clock import ManualClock
from tidelog.model import TopicPartition
from tidelog.records.builder import Producer
from tidelog.records.compression import Codec
from tidelog.records.kernel import COMPILED
from tidelog.wire.codec import Message
from tidelog.wire.headers import request_chunks
from tidelog.wire.messages.api_versions import ApiVersionsRequest
from tidelog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tidelog.wire.messages.heartbeat import HeartbeatRequest
from tidelog.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tidelog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tidelog.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

NOW_MS = 1_700_000_000_000
LAST = 77
"""The correlation id of a request that is always answered, and ends what the drawn ones are answered with."""

TOPICS = {
    "plain": {"index.interval.bytes": "300"},
    "stamped": {"message.timestamp.type": "LogAppendTime"},
    "compact": {"cleanup.policy": "compact"},
    "strict": {"message.timestamp.before.max.ms": "1000", "max.message.bytes": "300"},
    "zipped": {"compression.type": "gzip"},
    "flushed": {"flush.messages": "3"},
}
PARTITIONS = 3
MEMBER = b"raw-" + b"MEMBER" * 6
"""In a frame: the side's own member id, which is as long."""
LONG_MS = 600_000
NEW_MEMBER = "member"
"""A member of a consumer group (KIP-848), which chooses its own id."""


class Side:
    """A broker, a member of its group, and a connection that is opened again when the broker has closed it."""

    def __init__(self, folder: Path, apis: tuple[Api, ...]) -> None:
        self.broker = RunningBroker(
            folder,
            ManualClock(NOW_MS),
            apis,
            group_initial_rebalance_delay_ms=0,
            group_max_session_timeout_ms=LONG_MS,
            group_coordinator_rebalance_protocols="classic,consumer",
        )
        for topic, config in TOPICS.items():
            self.broker.create_topic(topic, PARTITIONS, **config)
        self.member = Member(self.broker.address, "members", session_timeout_ms=LONG_MS)
        commit(self.member.client, "simple", {("plain", 0): Offset(1)})  # It has to make the topic.
        self.member.enter()
        self.member.joined()
        self.member.sync({self.member.member_id: b""})
        self.member.client.receive()
        self.member.client.ask(
            ConsumerGroupHeartbeatRequest("modern", NEW_MEMBER, 0, None, None, 1000, ["unknown"], None, None, []), 1
        )
        self._client: RawClient | None = None
        if apis is not APIS:
            for log in self.broker.node.manager.logs.values():
                log.append_plain_fast = log._appends.plain_fast = lambda *_: None  # type: ignore[method-assign]

    def answers(self, frames: list[bytes]) -> list[bytes]:
        """Send frames, one after the other's answer, and return what came back; b"" where the connection was closed."""
        out = []
        for frame in frames:
            if self._client is None:
                self._client = RawClient(self.broker.address)
            last = b"".join(request_chunks(ApiVersionsRequest(), 0, LAST, None))
            try:
                self._client.send_bytes(frame.replace(MEMBER, self.member.member_id.encode()) + last)
                while struct.unpack(">i", (came := self._client.receive_frame())[:4])[0] != LAST:
                    out.append(came)
            except ConnectionError:
                self._client.close()
                self._client = None
                out.append(b"")
        return out

    def state(self) -> list[Any]:
        """Return what the requests have changed: logs, committed offsets, counters."""
        node = self.broker.node

        def look() -> list[Any]:
            logs = node.manager.logs
            records = [
                (key, log.log_start_offset, log.high_watermark, log.log_end_offset, bytes(log.read(0, 1 << 20).data))
                for key, log in sorted(logs.items())
                if log.log_end_offset and key.topic != "__consumer_offsets"
            ]
            producers = [(key, dict(log.producer_state.active_producers)) for key, log in sorted(logs.items())]
            committed = [
                (name, sorted(group.offsets.all()) if (group := node.groups.get(name)) else None)
                for name in ("simple", "new", "members", "größe")
            ]
            modern = None if (group := node.groups.get("modern")) is None or not group.consumer else group.consumer.members
            topics = {
                name: (one.appends, one.records, one.received_bytes, one.append_latency_ms.counts, one.ahead)
                for name, one in node.metrics.topics.items()
                if name != "__consumer_offsets"
            }
            closed = {key: api.closed for key, api in node.metrics.apis.items()}
            lengths = [logs[TopicPartition("__consumer_offsets", index)].log_end_offset for index in range(50)]
            return [records, producers, committed, modern, topics, closed, lengths, node.metrics.counters.malformed_requests]

        return self.broker.on_loop(look)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self.member.client.close()
        self.broker.stop()


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    without = tuple(api._replace(answer_usual=None) for api in APIS)
    folder = tmp_path_factory.mktemp("sides")
    both = Side(folder / "short", APIS), Side(folder / "long", without)
    yield both
    for side in both:
        side.close()


class Drawn:
    """Requests, mostly usual ones."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def topics(self) -> list[str]:
        draw = self.draw
        names = draw.choices([*TOPICS, "unknown", "x" * 249], weights=[9, 3, 3, 2, 2, 2, 1, 1], k=draw.choice([1, 1, 1, 2, 3]))
        return names if draw.random() < 0.1 else list(dict.fromkeys(names))

    def partitions(self) -> list[int]:
        draw = self.draw
        some = draw.choices([0, 1, 2, 7, -1], weights=[6, 5, 5, 1, 1], k=draw.choice([0, 1, 1, 1, 2, 3]))
        return some if draw.random() < 0.1 else list(dict.fromkeys(some))

    def records(self) -> bytes | None:
        draw = self.draw
        producer = (
            Producer(-1, -1, -1) if draw.random() < 0.7 else Producer(draw.randrange(2), draw.randrange(2), draw.randrange(3))
        )
        made = batch(
            0,
            NOW_MS + draw.choice([0, -5, -5000, 10**7]),
            draw.randrange(1, 4),
            codec=draw.choice([Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP, Codec.ZSTD]),
            producer=producer,
            transactional=producer.producer_id >= 0 and draw.random() < 0.2,
        )
        if draw.random() < 0.15:
            made[draw.randrange(len(made))] ^= 1 << draw.randrange(8)
        return draw.choices([bytes(made), bytes(made) * 2, b"", None], weights=[30, 1, 1, 1])[0]

    def produce(self) -> tuple[Message, int]:
        draw = self.draw
        topics = [
            TopicProduceData(name, partition_data=[PartitionProduceData(one, self.records()) for one in self.partitions()])
            for name in self.topics()
        ]
        acks = draw.choices([1, -1, 0, 3], weights=[6, 6, 2, 1])[0]
        return ProduceRequest(draw.choice([None] * 9 + ["me"]), acks, 10_000, topics), draw.randint(0, 12)

    def list_offsets(self) -> tuple[Message, int]:
        draw = self.draw
        times = [-1, -2, -3, -4, -5, -6, -9, 0, NOW_MS - 5000, NOW_MS, NOW_MS + 1, NOW_MS + 10**8]
        topics = [
            ListOffsetsTopic(
                name,
                [ListOffsetsPartition(one, draw.choice([-1, -1, -1, 0, 5]), draw.choice(times), 3) for one in self.partitions()],
            )
            for name in self.topics()
        ]
        replica, level = draw.choice([-1, -1, -1, -1, -2, 3]), draw.choice([0, 0, 1, 1, 2])
        return ListOffsetsRequest(replica, level, topics, 1000), draw.randint(0, 11)

    def group(self) -> str:
        return self.draw.choices(["simple", "members", "new", "größe", ""], weights=[5, 5, 2, 1, 1])[0]

    def member(self) -> str:
        return self.draw.choices(["", MEMBER.decode(), "other"], weights=[2, 4, 1])[0]

    def heartbeat(self) -> tuple[Message, int]:
        draw = self.draw
        return HeartbeatRequest(
            self.group(), draw.choice([1, 1, 1, 0, -1]), self.member(), draw.choice([None, None, None, "instance"])
        ), draw.randint(0, 4)

    def consumer_heartbeat(self) -> tuple[Message, int]:
        draw = self.draw
        request = ConsumerGroupHeartbeatRequest(
            draw.choice(["modern"] * 6 + ["members", "new"]),
            draw.choice([NEW_MEMBER] * 6 + ["other"]),
            draw.choice([1] * 6 + [0, 2, -1, -2]),
            draw.choice([None] * 6 + ["", "instance"]),
            draw.choice([None] * 6 + ["rack"]),
            draw.choice([-1, -1, -1, 1000]),
            draw.choice([None, None, None, ["unknown"], ["unknown", "missing"], []]),  # The ids of topics are not the same.
            draw.choice([None] * 6 + [""]),
            draw.choice([None] * 6 + ["range", "none"]),
            draw.choice([None, None, None, []]),
        )
        return request, draw.randint(0, 1)

    def commit(self) -> tuple[Message, int]:
        draw = self.draw
        topics = [
            OffsetCommitRequestTopic(
                name,
                partitions=[
                    OffsetCommitRequestPartition(
                        one,
                        draw.randrange(100),
                        draw.choice([-1, 0, 4]),
                        draw.choice([-1, NOW_MS - 5]),
                        draw.choice([None, "", "metadata", "größe", "x" * 5000]),
                    )
                    for one in self.partitions()
                ],
            )
            for name in self.topics()
        ]
        group, member = self.group(), self.member()
        generation = draw.choice([1, 1, 0]) if member else draw.choice([-1, -1, -1, 1])
        instance = draw.choice([None] * 5 + ["instance"])
        return OffsetCommitRequest(group, generation, member, instance, draw.choice([-1, -1, 10_000]), topics), draw.randint(0, 9)

    def fetch_offsets(self) -> tuple[Message, int]:
        draw = self.draw
        version, is_stable = draw.randint(0, 9), draw.random() < 0.3
        if version < 8:
            some = [OffsetFetchRequestTopic(name, self.partitions()) for name in self.topics()]
            return OffsetFetchRequest(self.group(), None if version > 1 and draw.random() < 0.1 else some, [], is_stable), version
        groups = [
            OffsetFetchRequestGroup(
                self.group(),
                topics=None
                if draw.random() < 0.1
                else [OffsetFetchRequestTopics(name, partition_indexes=self.partitions()) for name in self.topics()],
            )
            for _ in range(draw.choice([1, 1, 1, 1, 2, 0]))
        ]
        return OffsetFetchRequest("", [], groups, is_stable), version

    def frame(self) -> bytes:
        draw = self.draw
        groups = [self.heartbeat, self.consumer_heartbeat, self.commit, self.fetch_offsets]
        message, version = draw.choice([self.produce, self.list_offsets, *groups])()
        client = draw.choice(["raw", "raw", None, "größe"])
        frame = bytearray(b"".join(request_chunks(message, version, draw.randrange(LAST), client)))
        if draw.random() < 0.25:
            for _ in range(draw.choice([1, 1, 3])):
                frame[draw.randrange(12, min(len(frame), 120)) if len(frame) > 12 else -1] = draw.choice([0, 1, 2, 127, 128, 255])
        if draw.random() < 0.1:
            frame = frame[: draw.randrange(12, len(frame) + 1)] + bytes(draw.choice([0, 0, 1, 3]))
            frame[:4] = struct.pack(">i", len(frame) - 4)
        return bytes(frame)


@examples(200)
@given(st.integers(0, 2**32))
def test_both_ways_answer_and_change_the_same(sides: tuple[Side, Side], seed: int) -> None:
    drawn = Drawn(seed)
    frames = [drawn.frame() for _ in range(12)]
    short, long = sides
    for frame in frames:
        assert short.answers([frame]) == long.answers([frame]), frame
        # What nobody is answered (acks=0, a connection that was closed meanwhile) may be done a little later.
        with suppress(TimeoutError):
            wait_until(lambda: short.state() == long.state(), "both to have done the same", PATIENCE_S)
    assert short.state() == long.state()


def _rows(*partitions: int, topic: str = "plain", note: str | None = "") -> OffsetCommitRequestTopic:
    return OffsetCommitRequestTopic(topic, partitions=[OffsetCommitRequestPartition(one, 5, -1, -1, note) for one in partitions])


@pytest.mark.parametrize(
    "topics",
    [
        [_rows(0, 2)],
        [_rows(0), _rows(1, topic="strict")],
        [_rows(0, PARTITIONS)],
        [_rows(-1, 0)],
        [_rows(0, topic="unknown"), _rows(1)],
        [_rows(1, 1)],
        [_rows(1), _rows(2)],
        [_rows(), _rows(2, topic="strict")],
        [_rows()],
        [],
        [_rows(0, note="größe")],
        [_rows(0, note="x" * 4096)],
        [_rows(0, note="x" * 4097), _rows(1, topic="strict")],
        [_rows(0, note=None)],
    ],
)
def test_commits_that_are_unusual_in_one_thing(sides: tuple[Side, Side], topics: list[OffsetCommitRequestTopic]) -> None:
    frame = b"".join(request_chunks(OffsetCommitRequest("simple", topics=topics), 8, 5, "raw"))
    assert sides[0].answers([frame]) == sides[1].answers([frame])
    assert sides[0].state() == sides[1].state()


@pytest.mark.skipif(not COMPILED, reason="interpreted, there is one way")
def test_usual_requests_take_the_short_way(sides: tuple[Side, Side], monkeypatch: pytest.MonkeyPatch) -> None:
    served = sides[0].broker.running.server.dispatcher._served
    partition = [PartitionProduceData(0, bytes(batch()))]
    usual: list[tuple[Message, int]] = [
        (ProduceRequest(None, -1, 1000, [TopicProduceData("plain", partition_data=partition)] * 1), 9),
        (ProduceRequest(None, 1, 1000, [TopicProduceData(name, partition_data=partition) for name in ("plain", "stamped")]), 11),
        (ListOffsetsRequest(-1, 0, [ListOffsetsTopic("plain", [ListOffsetsPartition(0, -1, at) for at in (NOW_MS,)])]), 7),
        (HeartbeatRequest("members", 1, MEMBER.decode()), 4),
        (ConsumerGroupHeartbeatRequest("idle", NEW_MEMBER, 1), 1),
        (
            OffsetCommitRequest(
                "simple", topics=[OffsetCommitRequestTopic("plain", partitions=[OffsetCommitRequestPartition(0)])]
            ),
            8,
        ),
        (OffsetFetchRequest("simple", [OffsetFetchRequestTopic("plain", [0, 1])]), 7),
        (
            OffsetFetchRequest(
                groups=[OffsetFetchRequestGroup("simple", topics=[OffsetFetchRequestTopics("plain", partition_indexes=[0])])]
            ),
            9,
        ),
    ]
    join = ConsumerGroupHeartbeatRequest("idle", NEW_MEMBER, 0, None, None, 1000, ["unknown"], None, None, [])
    sides[0].answers([b"".join(request_chunks(join, 1, 5, "raw"))])
    for message, version in usual:
        frame = b"".join(request_chunks(message, version, 5, "raw"))
        (before,) = sides[0].answers([frame])
        one = served[message.API_KEY << 16 | version]
        monkeypatch.setattr(one, "decode", None)
        (after,) = sides[0].answers([frame])
        assert len(before) == len(after) > 0 and one.metrics.microseconds.count >= 2
        monkeypatch.undo()
