"""A broker on a small disk that is filled again and again under every kind of write: `python -m tests.broker.full_disk DISK`.

Each kind goes on until it is acknowledged, as clients do. Once there is room every kind is acknowledged, without a restart; and
in the end, and after a start, what was acknowledged is there once and in order. Prints "well".
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from tests.broker.raw import RawClient
from tests.broker.test_scarce import batch, create, fetched, produce
from tests.patience import PATIENCE_S
from tidelog.records.builder import Producer
from tidelog.testing import Broker
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tidelog.wire.messages.find_coordinator import FindCoordinatorRequest
from tidelog.wire.messages.init_producer_id import InitProducerIdRequest
from tidelog.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from tidelog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

ROUNDS = 3
TRIES = 40
PROPERTIES = {
    "segment.index.bytes": 4096,
    "segment.bytes": 100_000,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.segment.bytes": 20_000,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.segment.bytes": 20_000,
    "log.initial.task.delay.ms": 0,
    "log.cleaner.backoff.ms": 100,
    "log.flush.offset.checkpoint.interval.ms": 100,
    "log.flush.start.offset.checkpoint.interval.ms": 100,
    "replica.high.watermark.checkpoint.interval.ms": 100,
}
TOPICS = {"plain": {}, "flushed": {"flush.messages": 1}, "rolls": {"segment.bytes": 20_000}}
LATER = {
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
"""What a client takes for "try again"."""


class Writes:
    """All kinds; each method tries one write, and returns its error code."""

    def __init__(self, client: RawClient) -> None:
        self.client = client
        self.appended = dict.fromkeys(TOPICS, 0)
        self.committed = 0
        self.topics: set[str] = set()
        self.deleted = 0
        self.created = 0
        self.producers: set[int] = set()
        self.transactional = 0

    def kinds(self) -> dict[str, Callable[[], int]]:
        appends = {f"append to {topic}": lambda topic=topic: self.append(topic) for topic in TOPICS}
        others = (self.commit, self.create, self.delete, self.producer_id, self.transactional_id)
        return appends | {each.__name__: each for each in others}

    def append(self, topic: str) -> int:
        sequence = self.appended[topic]
        data = batch(b"x" * 6_000, producer=Producer(77, 0, sequence))
        ((code, offset),) = produce(self.client, topic, range(1), data).values()
        if not code:
            assert offset == sequence, (topic, offset, sequence)
            self.appended[topic] += 1
        return code

    def commit(self) -> int:
        partition = OffsetCommitRequestPartition(0, self.committed + 1, committed_metadata="")
        request = OffsetCommitRequest("g", topics=[OffsetCommitRequestTopic("plain", partitions=[partition])])
        code = int(self.client.ask(request, 7).topics[0].partitions[0].error_code)
        self.committed += not code
        return code

    def create(self) -> int:
        name = f"new-{self.created}"
        code = create(self.client, name)
        if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            self.created += 1
        if not code:
            self.topics.add(name)
        return 0 if code == ErrorCode.TOPIC_ALREADY_EXISTS else code

    def delete(self) -> int:
        if not self.topics:
            return 0
        name = min(self.topics)
        code = int(self.client.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name)]), 6).responses[0].error_code)
        if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            self.topics.discard(name)
            return 0
        return code

    def producer_id(self) -> int:
        answer = self.client.ask(InitProducerIdRequest(None, 60_000), 4)
        assert answer.producer_id not in self.producers
        if not answer.error_code:
            self.producers.add(answer.producer_id)
        return int(answer.error_code)

    def transactional_id(self) -> int:
        code = int(self.client.ask(InitProducerIdRequest(f"tx-{self.transactional}", 60_000), 4).error_code)
        if code == ErrorCode.NOT_COORDINATOR:  # Who asks for one has the topic made.
            self.client.ask(FindCoordinatorRequest(f"tx-{self.transactional}", key_type=1), 2)
        self.transactional += not code
        return code

    def check(self, client: RawClient) -> None:
        for topic, count in self.appended.items():
            assert fetched(client, topic, 0) == list(range(count)), topic
        answer = client.ask(OffsetFetchRequest("g", [OffsetFetchRequestTopic("plain", [0])]), 7)
        assert answer.topics[0].partitions[0].committed_offset == self.committed


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as ballast:
        for size in (1 << 16, 1 << 9):
            try:
                while True:
                    ballast.write(bytes(size))
            except OSError:
                pass


def main(disk: Path) -> None:
    broker = Broker(disk / "data", **PROPERTIES).start()  # type: ignore[arg-type]
    for topic, properties in TOPICS.items():
        broker.create_topic(topic, **properties)
    with RawClient(("127.0.0.1", broker.port)) as client:
        writes = Writes(client)
        kinds = writes.kinds()
        refused: set[str] = set()
        for number in range(ROUNDS):
            for _ in range(5):
                for name, kind in kinds.items():
                    assert kind() in {0, *LATER}, name
            fill(disk / "ballast")
            for _ in range(TRIES):
                for name, kind in kinds.items():
                    code = kind()
                    assert code in {0, *LATER}, (name, code)
                    if code:
                        refused.add(name)
            (disk / "ballast").unlink()
            left, end = set(kinds), time.monotonic() + PATIENCE_S
            while left:
                assert time.monotonic() < end, (number, {name: kinds[name]() for name in left})
                left = {name for name in left if kinds[name]()}
                time.sleep(0.02)
        assert {"append to plain", "append to flushed", "append to rolls", "commit", "create"} <= refused, refused
        writes.check(client)
    assert broker.stop()
    broker.start()
    with RawClient(("127.0.0.1", broker.port)) as client:
        writes.check(client)
        names = {view.name for view in broker.call(lambda running: running.node.topics.all())}
        assert writes.topics <= names, writes.topics - names
    assert broker.stop()
    print("well")


if __name__ == "__main__":
    main(Path(os.fsdecode(sys.argv[1])))
