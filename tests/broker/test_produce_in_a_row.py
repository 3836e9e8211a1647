"""A connection's requests in a row are answered as each would be on a new connection, and the log has the same bytes."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.broker.conftest import RunningBroker, StartBroker
from tests.broker.raw import RawClient
from tests.broker.transactions.producers import TransactionalProducer, committed
from tidelog.broker.apis import produce
from tidelog.records.batch import CREATE_TIME
from tidelog.records.builder import NO_PRODUCER, Producer, build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.records import Record
from tidelog.storage.partition.watermarks import FetchIsolation
from tidelog.wire.error_codes import ErrorCode
from tidelog.wire.headers import read_response, request_chunks
from tidelog.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

SIZES = [0, 1, 2, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 100, 16_000, 16_200, 16_300, 40_000, 200_000]


def batch(size: int, seed: int = 0, codec: Codec = Codec.NONE, producer: Producer = NO_PRODUCER) -> bytes:
    value = random.Random(seed).randbytes(size)
    return bytes(build_batch_v2([Record(0, 1_000 + seed, CREATE_TIME, None, value)], codec=codec, producer=producer))


def damaged(records: bytes) -> bytes:
    return records[:-1] + bytes([records[-1] ^ 1])


def request(topic: str, records: bytes | None, acks: int = 1, partition: int = 0) -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=records)
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name=topic, partition_data=[data])])


def told(response: Any) -> Any:
    """What does not name the topic."""
    return response.throttle_time_ms, [topic.partition_responses for topic in response.responses]


def stored(broker: RunningBroker, topic: str) -> bytes:
    def read() -> bytes:
        return bytes(broker.node.manager.log(topic, 0).read(0, 100_000_000, FetchIsolation.LOG_END).data)

    return broker.on_loop(read)


@pytest.mark.parametrize("version", [3, 5, 8, 9, 11])
def test_the_answers_and_the_log_are_the_same(broker: RunningBroker, version: int) -> None:
    for topic in ("again", "fresh"):
        broker.create_topic(topic, 2, max_message_bytes=150_000)
    sets: list[tuple[bytes | None, int]] = [(batch(size, seed), 1 if seed > 10 else -1) for seed, size in enumerate(SIZES)]
    sets += [
        (damaged(batch(60)), 1),
        (batch(60, 9), 1),
        (None, 1),
        (b"", 1),
        (batch(60)[:40], 1),
        (batch(60) * 2, 1),
        (batch(500, 3, Codec.GZIP), 1),
        (batch(500, 3, Codec.ZSTD), 1),
        (batch(60, 5, producer=Producer(7, 0, 0)), 1),
        (batch(60, 5, producer=Producer(7, 0, 0)), 1),
        (batch(60, 5, producer=Producer(7, 0, 9)), 1),
        (batch(60), 5),
        (batch(60), 1),
    ]
    with broker.client() as one:
        one.ask(request("again", batch(10)), version)
        with broker.client() as other:
            other.ask(request("fresh", batch(10)), version)
        for records, acks in sets:
            seen = told(one.ask(request("again", records, acks), version))
            with broker.client() as other:
                assert seen == told(other.ask(request("fresh", records, acks), version))
    assert stored(broker, "again") == stored(broker, "fresh")


def test_a_request_whose_appends_take_long(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rest of it is appended in slices, and the same, although the next request arrives in the same memory."""
    monkeypatch.setattr(produce, "SLICE_S", -1.0)
    topics = ["t", "u"]
    for topic in topics:
        broker.create_topic(topic, 3)
    sets = [
        {(topic, p): batch(100, seed + 10 * p + i) for i, topic in enumerate(topics) for p in range(3)} for seed in (100, 200)
    ]
    sets[1]["u", 1] = damaged(sets[1]["u", 1])
    with broker.client() as client:
        for sent in sets:
            data = [
                TopicProduceData(name=t, partition_data=[PartitionProduceData(p, sent[t, p]) for p in range(3)]) for t in topics
            ]
            client.send(ProduceRequest(acks=1, timeout_ms=1000, topic_data=data), 9)
        answers = [client.receive() for _ in sets]
    found = [
        {
            (topic.name, one.index): (one.error_code, one.base_offset)
            for topic in answer.responses
            for one in topic.partition_responses
        }
        for answer in answers
    ]
    for offset, codes in enumerate(found):
        assert list(codes) == [(topic, p) for topic in topics for p in range(3)]
        refused = (ErrorCode.CORRUPT_MESSAGE, -1)
        assert codes == {key: refused if (offset, key) == (1, ("u", 1)) else (ErrorCode.NONE, offset) for key in codes}
    for seed, topic in enumerate(topics):
        values = [batch(100, at + seed)[-100:] for at in (100, 200)]
        assert all(value in stored(broker, topic) for value in values)


def test_who_changes_its_mind_is_understood(broker: RunningBroker) -> None:
    draw = random.Random(1)
    broker.create_topic("t", 3)
    broker.create_topic("u", 3)
    ends: dict[tuple[str, int], int] = {}
    with broker.client() as client:
        for seed in range(300):
            topic, partition, version = draw.choice("tu"), draw.randrange(3), draw.choice([7, 9])
            if draw.random() < 0.1:
                client.client_id = draw.choice([None, "", "raw", "others"])
            for _ in range(draw.randrange(1, 4)):
                answer = client.ask(request(topic, batch(draw.choice([5, 200, 17_000]), seed), -1, partition), version)
                told_offset = answer.responses[0].partition_responses[0].base_offset
                assert (answer.responses[0].name, told_offset) == (topic, ends.get((topic, partition), 0))
                ends[topic, partition] = told_offset + 1


def test_without_an_answer(broker: RunningBroker, client: RawClient) -> None:
    broker.create_topic("t")
    for seed in range(10):
        client.send(request("t", batch(50, seed), 0), 9)
        client.forget()
    assert client.ask(request("t", batch(50)), 9).responses[0].partition_responses[0].base_offset == 10
    client.send(request("t", batch(50), 0), 9)
    client.send(request("t", batch(50), 0), 9)
    client.send(request("t", damaged(batch(50)), 0), 9)
    assert client.closed()


def test_a_topic_that_goes_and_comes(broker: RunningBroker, client: RawClient) -> None:
    codes = []
    for change in (broker.create_topic, None, "delete", None, broker.create_topic, None):
        if change == "delete":
            broker.on_loop(lambda: broker.node.manager.delete_topic("t"))
        elif change is not None:
            change("t")  # type: ignore[operator]
        codes.append(client.ask(request("t", batch(50)), 9).responses[0].partition_responses[0].error_code)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [0, 0, unknown, unknown, 0, 0]


@pytest.mark.parametrize("version", [5, 9])
def test_frames_that_begin_as_the_last_one_did(broker: RunningBroker, version: int) -> None:
    """A changed byte after a beginning that was sent before is seen as on a new connection."""
    broker.create_topic("t")
    records = batch(200)
    frame = b"".join(request_chunks(request("t", records), version, 1, "raw"))
    start = frame.index(records)

    def verdict(*frames: bytes) -> int | None:
        with broker.client() as client:
            client.send_bytes(b"".join(frames))
            try:
                answer = [client.receive_frame() for _ in frames][-1]
            except ConnectionError:
                return None
        _, response = read_response(ProduceResponse, version, answer)
        return response.responses[0].partition_responses[0].error_code

    verdicts = set()
    for position in (*range(start - 8, start + 24), *range(len(frame) - 5, len(frame))):
        for value in {0x00, 0x7F, 0xFF} - {frame[position]}:
            changed = frame[:position] + bytes([value]) + frame[position + 1 :]
            seen = verdict(frame, changed)
            assert seen == verdict(changed)
            verdicts.add(seen)
    assert {None, ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE} < verdicts


def test_in_a_transaction(start_broker: StartBroker) -> None:
    """While it is open in the log nobody is asked about it; before and after that the request goes the usual way."""
    broker = start_broker(transaction_state_log_num_partitions=1)
    broker.create_topic("t")
    with TransactionalProducer(broker.address) as me:
        me.init()
        for is_open in (True, False, True):
            if is_open:
                me.add(("t", 0))
            codes = [me.produce("t", version=9) for _ in range(4)]
            assert codes == [ErrorCode.NONE if is_open else ErrorCode.INVALID_TXN_STATE] * 4
            if is_open:
                me.end()
        assert len(committed(me.client, "t")) == 8
