"""Batches that our builder made, judged by a broker; batches that a broker stored, built again.

| what | must be |
|---|---|
| uncompressed, whatever the producer and the topic's settings | the same bytes when built again |
| compressed, not recompressed by the broker | the same records; our own batches are taken, and stored as they were sent |
| recompressed by the broker | the same records |
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer

from tests.kafka import Kafka391, dump_log_segments, producer_performance
from tests.kafka.clients import NewRow, Row, consume, flush, produce, watermarks
from tests.kafka.java import wait_until
from tests.kafka.tools import complaints
from tests.kafka.wire import produce_batch
from tests.patience import PATIENCE_S
from tidelog.reader.log import Log
from tidelog.records import builder
from tidelog.records.batch import BatchHeader
from tidelog.records.builder import build_batch_v2
from tidelog.records.compression import Codec
from tidelog.records.records import Record, iter_records

T = 1_600_000_000_000

each_codec = pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name.lower())


def rows(count: int) -> list[NewRow]:
    """Records with everything that a record can have or lack."""
    return [
        NewRow(
            None if n % 5 == 0 else b"key %d" % n,
            None if n % 7 == 0 else b"value " * (n % 40),
            T + n * 10 - (5000 if n % 6 == 0 else 0),
            [] if n % 3 else [("", b""), ("größe", None), ("h", b"\x00\xff" * (n % 50))],
        )
        for n in range(count)
    ]


def stored(broker: Kafka391, topic: str) -> Iterator[tuple[BatchHeader, bytes]]:
    """Yield each batch of the partition's folder, with its bytes."""
    with Log.open(broker.partition_folder(topic)) as log:
        for segment in log.segments:
            for header in segment.headers(check_crc=True):
                yield header, bytes(segment.read_batch(header))


def built_again(header: BatchHeader, records: list[Record]) -> bytes:
    """Build a batch from what was read of it."""
    # A LogAppendTime batch keeps the producers' times in its deltas; the records carry the append time.
    append_time = header.max_timestamp if header.timestamp_type == 1 else -1
    return bytes(
        build_batch_v2(
            records,
            base_offset=header.base_offset,
            codec=header.codec,
            timestamp_type=header.timestamp_type,
            append_time=append_time,
            leader_epoch=header.leader_epoch,
            producer=builder.Producer(header.producer_id, header.producer_epoch, header.base_sequence),
            is_transactional=header.is_transactional,
            is_control=header.is_control,
        )
    )


def expect_same_bytes(broker: Kafka391, topic: str) -> int:
    """Check every batch of a CreateTime topic; return how many."""
    count = 0
    for header, data in stored(broker, topic):
        assert header.codec is Codec.NONE
        assert built_again(header, list(iter_records(header, data))) == data, header
        count += 1
    return count


def test_uncompressed_batches_of_librdkafka(broker: Kafka391) -> None:
    broker.create_topic("built-librdkafka", segment_bytes=65536)
    produce(broker.bootstrap, "built-librdkafka", rows(2000), batch_records=37)
    assert expect_same_bytes(broker, "built-librdkafka") >= 2000 / 37


def test_uncompressed_batches_of_the_java_producer(broker: Kafka391) -> None:
    broker.create_topic("built-java", segment_bytes=65536)
    producer_performance(broker.bootstrap, "built-java", 5000, 50, batch_size=4096, enable_idempotence="true", acks="all")
    assert expect_same_bytes(broker, "built-java") >= 50


def test_uncompressed_batches_of_transactions_and_their_markers(broker: Kafka391) -> None:
    broker.create_topic("built-transactions")
    config = {"bootstrap.servers": broker.bootstrap, "transactional.id": "builder", "batch.num.messages": 5, "log_level": 0}
    producer = Producer(config)
    producer.init_transactions(PATIENCE_S)
    for turn in range(6):
        producer.begin_transaction()
        for row in rows(20):
            producer.produce("built-transactions", row.value, row.key, 0, timestamp=row.timestamp)
        flush(producer)
        (producer.commit_transaction if turn % 2 else producer.abort_transaction)(PATIENCE_S)
    # The last marker is written a moment after the coordinator has said yes.
    wait_until(lambda: watermarks(broker.bootstrap, "built-transactions")[1] == 6 * 21, "the last marker")
    assert expect_same_bytes(broker, "built-transactions") >= 6 * 5
    assert sum(header.is_control for header, _ in stored(broker, "built-transactions")) == 6


def test_uncompressed_batches_with_append_time(broker: Kafka391) -> None:
    """The batch's times are the broker's, its deltas still the producer's: built from the rows sent, it is what was stored."""
    broker.create_topic("built-append-time", message_timestamp_type="LogAppendTime")
    sent = rows(500)
    produce(broker.bootstrap, "built-append-time", sent, batch_records=21)
    for header, data in stored(broker, "built-append-time"):
        assert header.timestamp_type == 1
        records = [record._replace(timestamp=sent[record.offset].timestamp) for record in iter_records(header, data)]
        assert built_again(header, records) == data


@each_codec
def test_compressed_batches_hold_the_same_records(broker: Kafka391, codec: Codec) -> None:
    """What librdkafka compressed, we read; what we compress of it, we read the same."""
    topic = f"read-{codec.name.lower()}"
    broker.create_topic(topic)
    sent = rows(1000)
    produce(broker.bootstrap, topic, sent, batch_records=100, compression_type=codec.name.lower())
    read: list[Record] = []
    codecs = set()
    for header, data in stored(broker, topic):
        codecs.add(header.codec)
        records = list(iter_records(header, data))
        read += records
        ours = built_again(header, records)
        assert list(iter_records(header._replace(size=len(ours), crc=int.from_bytes(ours[17:21])), ours)) == records
    assert [(row.key, row.value, row.timestamp, list(row.headers)) for row in read] == [
        (row.key, row.value, row.timestamp, list(row.headers)) for row in sent
    ]
    assert codec in codecs


@each_codec
def test_kafka_takes_our_batches_as_they_are(broker: Kafka391, codec: Codec) -> None:
    """Sent by hand, validated by the broker, stored without a change but offset and leader epoch, served to a client."""
    topic = f"sent-{codec.name.lower()}"
    broker.create_topic(topic)
    sent = rows(1000)
    batches = []
    for first in range(0, 1000, 250):
        records = [
            Record(offset, row.timestamp, 0, row.key, row.value, tuple(row.headers))
            for offset, row in enumerate(sent[first : first + 250])
        ]
        batch = build_batch_v2(records, codec=codec)
        assert produce_batch(broker.port, topic, 0, bytes(batch)) == (0, first)
        batches.append(batch)
    for (header, data), batch in zip(stored(broker, topic), batches, strict=True):
        builder.set_base_offset_and_epoch(batch, header.base_offset, header.leader_epoch)
        assert data == bytes(batch)
    assert consume(broker.bootstrap, topic) == [
        Row(offset, row.timestamp, 1, row.key, row.value, tuple(row.headers)) for offset, row in enumerate(sent)
    ]
    dump = dump_log_segments(sorted(broker.partition_folder(topic).glob("*.log")), "--deep-iteration")
    assert complaints(dump) == []
    assert sum(line.startswith("| offset:") for line in dump.splitlines()) == 1000


@each_codec
def test_batches_that_kafka_recompressed(broker: Kafka391, codec: Codec) -> None:
    topic = f"recompressed-{codec.name.lower()}"
    broker.create_topic(topic, compression_type="uncompressed" if codec is Codec.NONE else codec.name.lower())
    sent = rows(1000)
    produce(broker.bootstrap, topic, sent, batch_records=100, compression_type="gzip" if codec is not Codec.GZIP else "lz4")
    read = []
    for header, data in stored(broker, topic):
        assert header.codec is codec
        records = list(iter_records(header, data))
        read += records
        if codec is Codec.NONE:
            assert built_again(header, records) == data
    assert [(row.offset, row.key, row.value, row.timestamp) for row in read] == [
        (offset, row.key, row.value, row.timestamp) for offset, row in enumerate(sent)
    ]


def test_kafka_refuses_what_is_wrong_with_a_batch(broker: Kafka391) -> None:
    """The judge does look: a flipped bit, a wrong count, a record without key where one is needed."""
    broker.create_topic("refused")
    batch = build_batch_v2([Record(0, T, 0, b"k", b"v"), Record(1, T, 0, None, b"v")])
    flipped = bytearray(batch)
    flipped[-1] ^= 1
    assert produce_batch(broker.port, "refused", 0, bytes(flipped)).error_code == 2
    short = bytearray(batch)
    builder.pack_header_v2(short, base_offset=0, last_offset=0, base_timestamp=T, max_timestamp=T, record_count=1)
    assert produce_batch(broker.port, "refused", 0, bytes(short)).error_code == 87
    broker.create_topic("refused-compacted", cleanup_policy="compact")
    assert produce_batch(broker.port, "refused-compacted", 0, bytes(batch)).error_code == 87
    assert produce_batch(broker.port, "refused", 0, bytes(batch)) == (0, 0)
