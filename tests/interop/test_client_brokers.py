"""The client, scans, commands and the Spark source against Apache Kafka 3.9.1 and 2.4.1: what librdkafka and the folder say."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition

import tidelog
from tests.cli.conftest import run_ok
from tests.kafka import Kafka241, Kafka391
from tests.kafka.clients import alter_topic, consume, offset_for_time
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S
from tidelog import FoundOffset, NewRecord, NotFound
from tidelog.clock import SystemClock
from tidelog.errors import (
    InvalidTimestampError,
    OffsetOutOfRangeError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from tidelog.spark.options import parse_options
from tidelog.spark.source import TidelogReader

DAY = 1_373_414_400_000  # 2013-07-10
CODECS: tuple[Any, ...] = ("none", "gzip", "snappy", "lz4", "zstd")

Rows = list[tuple[Any, ...]]


@pytest.fixture(scope="module")
def old_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka241]:
    with Kafka241(tmp_path_factory.mktemp("kafka-2.4.1")) as running:
        yield running


def seen_by_librdkafka(bootstrap: str, topic: str, isolation: str = "read_uncommitted") -> Rows:
    return [
        (r.offset, r.timestamp, r.timestamp_type - 1, r.key, r.value, r.headers)
        for r in consume(bootstrap, topic, isolation=isolation)
    ]


def seen_by_client(bootstrap: str, topic: str, isolation: Any = "read_uncommitted", **times: Any) -> Rows:
    with tidelog.connect(bootstrap) as client:
        return [record[2:] for record in client.read(topic, isolation=isolation, **times)]


def seen_by_scan(bootstrap: str, topic: str, isolation: str = "read_uncommitted", **times: Any) -> Rows:
    table = tidelog.scan(bootstrap, topic, isolation=isolation, **times).read_all()
    stamps = table["timestamp"].cast(pa.int64()).to_pylist()
    return [
        (
            row["offset"],
            -1 if stamp is None else stamp,
            row["timestamp_type"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row, stamp in zip(table.to_pylist(), stamps, strict=True)
    ]


def late(rng: random.Random, count: int) -> list[NewRecord]:
    """Records a second apart, every fifth up to a minute late, some without key, some tombstones."""
    return [
        NewRecord(
            None if i % 17 == 0 else b"value %d" % i,
            None if i % 3 == 0 else b"key %d" % (i % 7),
            DAY + 1_000 * i - (rng.randrange(60_000) if i % 5 == 0 else 0),
        )
        for i in range(100, 100 + count)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_what_is_produced(broker: Kafka391, codec: Any) -> None:
    topic = f"produced-{codec}"
    broker.create_topic(topic)
    records = [record._replace(headers=[("a", b"1"), ("b", None)]) for record in late(random.Random(1), 500)]
    with tidelog.connect(broker.bootstrap) as client:
        done = client.produce_many(topic, records, compression=codec, batch_bytes=4_000)
        assert client.produce(topic, b"now").timestamp > DAY
    assert [place.offset for place in done] == list(range(500))
    rows = seen_by_librdkafka(broker.bootstrap, topic)
    assert [row[1:] for row in rows[:-1]] == [
        (record.timestamp, 0, record.key, record.value, (("a", b"1"), ("b", None))) for record in records
    ]
    assert seen_by_client(broker.bootstrap, topic) == seen_by_scan(broker.bootstrap, topic) == rows


def test_append_times_and_refusals(broker: Kafka391) -> None:
    broker.create_topic("append-time", message_timestamp_type="LogAppendTime")
    broker.create_topic("strict", message_timestamp_before_max_ms="3600000")
    with tidelog.connect(broker.bootstrap) as client:
        done = client.produce("append-time", b"value", timestamp=DAY)
        assert (done.timestamp, done.timestamp_type) == seen_by_librdkafka(broker.bootstrap, "append-time")[0][1:3]
        with pytest.raises(InvalidTimestampError) as refused:
            client.produce_many("strict", [NewRecord(b""), NewRecord(b"", timestamp=DAY)])
        assert [error.batch_index for error in refused.value.record_errors] == [1]
        assert f": record 1: Timestamp {DAY} of message with offset 1 is out of range" in str(refused.value)
        assert client.produce("strict", b"").offset == 0
        with pytest.raises(UnknownTopicOrPartitionError):
            client.read("nowhere")


def test_offsets_for_times_and_ranges(broker: Kafka391) -> None:
    broker.create_topic("ranges", 2)
    rng = random.Random(2)
    records = [record._replace(partition=i % 2) for i, record in enumerate(late(rng, 2_000))]
    with tidelog.connect(broker.bootstrap) as client:
        client.produce_many("ranges", records, batch_bytes=3_000)
        for _ in range(20):
            moment = DAY + rng.randrange(2_200_000)
            answers = client.offsets_for_times({("ranges", 0): moment, ("ranges", 1): moment})
            for key, answer in answers.items():
                wanted = offset_for_time(broker.admin, *key, moment)
                assert (answer[:2] if isinstance(answer, FoundOffset) else (-1, -1)) == wanted
    for _ in range(10):
        start = DAY + rng.randrange(2_200_000)
        end = start + rng.randrange(300_000)
        wanted_rows = sorted(
            (record.partition, record.timestamp, record.value)
            for record in records
            if start <= record.timestamp < end  # type: ignore[operator]
        )
        with tidelog.connect(broker.bootstrap) as client:
            found = list(client.read("ranges", from_time=start, to_time=end))
        assert sorted((record.partition, record.timestamp, record.value) for record in found) == wanted_rows
        report = tidelog.ScanReport()
        table = tidelog.scan(broker.bootstrap, "ranges", start, end, report=report).read_all()
        folder = tidelog.scan(str(broker.data), "ranges", start, end).read_all()
        assert table.equals(folder)
    text = run_ok("cat", broker.bootstrap, "ranges", "--from", DAY + 500_000, "--to", DAY + 600_000).stdout
    assert text == run_ok("cat", broker.data, "ranges", "--from", DAY + 500_000, "--to", DAY + 600_000).stdout
    assert len(text.splitlines()) > 50
    for at in (DAY + 700_000, "max", "earliest", "latest"):
        args = ("ranges", "--at", at, "--json")
        assert run_ok("find", broker.bootstrap, *args).stdout == run_ok("find", broker.data, *args).stdout
    for line in run_ok("stat", broker.bootstrap, "ranges", "--json").json_lines:
        assert (line["log_start_offset"], line["high_watermark"], line["last_stable_offset"]) == (0, 1_000, 1_000)
        assert line["bytes"] > 0


def test_kafka_s_none_hides_nothing(broker: Kafka391) -> None:
    """The log start was moved after the first segment's latest record: Kafka then says that nothing is at or after that time."""
    broker.create_topic("hidden", segment_bytes="1048576", segment_ms="1000000000")
    with tidelog.connect(broker.bootstrap) as client:
        times = [100_000, 1, 2, 3] * 300
        client.produce_many("hidden", [NewRecord(b"x" * 1_000, timestamp=DAY + time) for time in times], batch_bytes=100_000)
        client.produce_many("hidden", [NewRecord(b"y", timestamp=DAY + 60_000)])
        # The first segment is full: its last three records are early ones.
        first_segment_end = min(int(path.stem) for path in broker.partition_folder("hidden").glob("*.log") if int(path.stem) > 0)
        start = first_segment_end - 1
        assert times[start] == 3
        broker.admin.delete_records([TopicPartition("hidden", 0, start)])[TopicPartition("hidden", 0)].result(PATIENCE_S)
        later = [r for r in range(start, 1_201) if r == 1_200 or times[r] == 100_000]
        found = [record.offset for record in client.read("hidden", from_time=DAY + 50_000)]
        assert found == later
        answer = client.offsets_for_times({("hidden", 0): DAY + 50_000})["hidden", 0]
        assert answer is NotFound.NOTHING_THAT_LATE
    table = tidelog.scan(broker.bootstrap, "hidden", start=DAY + 50_000, columns=["offset"]).read_all()
    assert table["offset"].to_pylist() == later


def test_transactions(broker: Kafka391) -> None:
    broker.create_topic("transacted")
    config: dict[str, Any] = {"bootstrap.servers": broker.bootstrap, "linger.ms": 0, "log_level": 0}
    producer = Producer(config | {"transactional.id": "t-1", "transaction.timeout.ms": 600_000})
    producer.init_transactions(PATIENCE_S)
    rng = random.Random(3)
    other = Producer(config)
    for number in range(12):
        producer.begin_transaction()
        for i in range(rng.randrange(1, 20)):
            producer.produce("transacted", b"%d-%d" % (number, i), timestamp=DAY + number)
            if rng.random() < 0.2:
                producer.flush()
                other.produce("transacted", b"plain", timestamp=DAY + number)
                other.flush()
        producer.flush()
        if rng.random() < 0.5:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    # one stays open: what follows it is not stable
    producer.begin_transaction()
    producer.produce("transacted", b"open", timestamp=DAY + 100)
    producer.flush()
    other.produce("transacted", b"behind", timestamp=DAY + 101)
    other.flush()
    for isolation in ("read_uncommitted", "read_committed"):
        rows = seen_by_librdkafka(broker.bootstrap, "transacted", isolation)
        assert seen_by_client(broker.bootstrap, "transacted", isolation) == rows
        assert seen_by_scan(broker.bootstrap, "transacted", isolation) == rows
        later = [row for row in rows if row[1] >= DAY + 6]
        assert seen_by_scan(broker.bootstrap, "transacted", isolation, start=DAY + 6) == later
    (line,) = run_ok("stat", broker.bootstrap, "transacted", "--json").json_lines
    assert line["last_stable_offset"] == line["high_watermark"] - 2
    producer.abort_transaction()


def test_deleted_while_it_is_read(broker: Kafka391) -> None:
    broker.create_topic("deleted")
    with tidelog.connect(broker.bootstrap) as client:
        client.produce_many("deleted", [NewRecord(b"x" * 1_000, timestamp=DAY) for _ in range(5_000)], batch_bytes=10_000)
        reader = client.read("deleted")
        next(reader)
        broker.admin.delete_records([TopicPartition("deleted", 0, 4_900)])[TopicPartition("deleted", 0)].result(PATIENCE_S)
        with pytest.raises(OffsetOutOfRangeError):
            list(reader)
        assert len(list(client.read("deleted"))) == 100


def test_large_batches(broker: Kafka391) -> None:
    """Larger than a fetch: each comes whole, and few bytes come twice."""
    broker.create_topic("large", max_message_bytes="20000000")
    values = [bytes([i]) * 700_000 for i in range(20)] + [b"L" * 9_000_000]
    with tidelog.connect(broker.bootstrap) as client:
        client.produce_many("large", [NewRecord(value, timestamp=DAY) for value in values], batch_bytes=1)
    report = tidelog.ScanReport()
    assert tidelog.scan(broker.bootstrap, "large", report=report).read_all()["value"].to_pylist() == values
    assert report.bytes_read < 1.5 * sum(map(len, values))


def test_a_broker_that_is_killed(tmp_path: Path) -> None:
    """Every call waits for it to come back; what was acknowledged is there once."""
    with Kafka391(tmp_path) as broker:
        broker.create_topic("t")
        with tidelog.connect(broker.bootstrap, timeout_ms=180_000) as client:
            acknowledged = [client.produce("t", b"%d" % i, timestamp=DAY + i).offset for i in range(50)]
            broker.kill()
            starting = threading.Timer(0.5, broker.start)
            starting.start()
            acknowledged += [client.produce("t", b"%d" % i, timestamp=DAY + i).offset for i in range(50, 100)]
            starting.join()
            assert acknowledged == list(range(100))
            assert [record.value for record in client.read("t")] == [b"%d" % i for i in range(100)]


class TestOldFormats:
    """Apache Kafka 2.4.1, whose topics may still be in v0 and v1."""

    @pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
    @pytest.mark.parametrize("version", ["0.9.0", "0.10.2", "2.4"])
    @pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
    def test_formats(self, old_broker: Kafka241, codec: Any, version: str, kind: str) -> None:
        topic = f"t-{version}-{codec}-{kind}"
        old_broker.create_topic(topic, message_format_version=version, message_timestamp_type=kind)
        records = late(random.Random(4), 300)
        with tidelog.connect(old_broker.bootstrap) as client:
            done = client.produce_many(topic, records, compression=codec, batch_bytes=2_000)
            assert [place.offset for place in done] == list(range(300))
            rows = seen_by_librdkafka(old_broker.bootstrap, topic)
            assert seen_by_client(old_broker.bootstrap, topic) == seen_by_scan(old_broker.bootstrap, topic) == rows
            answer = client.offsets_for_times({(topic, 0): DAY + 200_000})[topic, 0]
            if version == "0.9.0":
                assert answer is NotFound.NO_TIMESTAMPS
                assert seen_by_scan(old_broker.bootstrap, topic, start=0) == []
                return
            wanted = offset_for_time(old_broker.admin, topic, 0, DAY + 200_000)
            assert isinstance(answer, FoundOffset)
            assert answer[:2] == wanted
            start, end = rows[100][1], rows[200][1] + 1
            in_range = [row for row in rows if start <= row[1] < end]
            assert seen_by_client(old_broker.bootstrap, topic, from_time=start, to_time=end) == in_range
            assert seen_by_scan(old_broker.bootstrap, topic, start=start, end=end) == in_range
            # before 3.0 nobody knows the largest timestamp: all is read, and nothing found
            assert seen_by_client(old_broker.bootstrap, topic, from_time=10**15) == []
            with pytest.raises(UnsupportedVersionError):
                client.max_timestamp_offsets([(topic, 0)])

    def test_a_topic_whose_format_was_changed(self, old_broker: Kafka241) -> None:
        topic = "changed"
        old_broker.create_topic(topic, message_format_version="0.10.2")
        with tidelog.connect(old_broker.bootstrap) as client:
            for number, version in enumerate(("0.10.2", "2.4", "0.9.0", "2.4", "0.9.0")):
                alter_topic(old_broker.bootstrap, topic, {"message.format.version": version})
                has_times = version != "0.9.0"
                wait_until(
                    lambda has_times=has_times: (
                        has_times  # type: ignore[misc]
                        == (client.offsets_for_times({(topic, 0): 0})[topic, 0] is not NotFound.NO_TIMESTAMPS)
                    ),
                    f"the broker to take {version} in",
                )
                client.produce_many(topic, [NewRecord(b"%d" % i, timestamp=DAY + 100 * number + i) for i in range(20)])
            rows = seen_by_librdkafka(old_broker.bootstrap, topic)
            assert seen_by_client(old_broker.bootstrap, topic) == seen_by_scan(old_broker.bootstrap, topic) == rows
            # its format is v0 now, so it finds nothing by time, though older segments have timestamps
            assert client.offsets_for_times({(topic, 0): DAY})[topic, 0] is NotFound.NO_TIMESTAMPS
            timed = [row for row in rows if DAY + 10 <= row[1] < DAY + 310]
            assert len(timed) == 10 + 20 + 10
            assert seen_by_client(old_broker.bootstrap, topic, from_time=DAY + 10, to_time=DAY + 310) == timed
            assert seen_by_scan(old_broker.bootstrap, topic, start=DAY + 10, end=DAY + 310) == timed


def test_the_spark_source(broker: Kafka391) -> None:
    """The reader itself, as Spark calls it: Spark and its connector have tests of their own."""
    broker.create_topic("sparked", 3)
    with tidelog.connect(broker.bootstrap) as client:
        records = [record._replace(partition=i % 3) for i, record in enumerate(late(random.Random(5), 6_000))]
        client.produce_many("sparked", records)

    def read(**options: Any) -> list[tuple[int, int]]:
        given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "sparked"} | options
        reader = TidelogReader(parse_options(given, SystemClock()), 2)
        rows = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
        return [(row["partition"], row["offset"]) for row in rows]

    everything = [(number, offset) for number in range(3) for offset in range(2_000)]
    assert read() == read(minPartitions="6") == everything
    start, end = DAY + 1_000_000, DAY + 3_000_000
    in_range = [(i % 3, i // 3) for i, record in enumerate(records) if start <= record.timestamp < end]  # type: ignore[operator]
    assert sorted(read(startTime=str(start), endTime=str(end))) == sorted(in_range)
    by_offset = []
    for number in range(3):
        first, behind = (offset_for_time(broker.admin, "sparked", number, moment)[0] for moment in (start, end))  # type: ignore[index]
        by_offset += [(number, offset) for offset in range(first, behind)]
    assert read(startingTimestamp=str(start), endingTimestamp=str(end)) == by_offset
