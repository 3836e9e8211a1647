"""Real clients in the corners: formats and timestamp types switched on a live topic, refusals as each library says them,
old clients before what they cannot read, log starts that moved, restarts, many partitions, long polls."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aiokafka
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

import tidelog
from tests.kafka.clients import NewRow, Row, alter_topic, consume, create_topics, produce
from tests.kafka.java import wait_until
from tests.kafka.real_clients import PYTHON_CLIENTS, AioKafka, Client, KafkaPython, Librdkafka, Sent, Write
from tests.patience import PATIENCE_S

NOW_MS = int(time.time() * 1000)
LONG_MS = 600_000
LIBRARIES: tuple[Client, ...] = (Librdkafka(), KafkaPython(), AioKafka())


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    with tidelog.Broker() as broker:
        yield broker.bootstrap_servers


def rows(count: int, first_ms: int = NOW_MS, prefix: bytes = b"value") -> list[NewRow]:
    return [NewRow(b"key-%d" % number, b"%s %d" % (prefix, number), first_ms + number) for number in range(count)]


# --- switched on a live topic


def test_formats_raised_and_lowered_on_a_live_topic(bootstrap: str) -> None:
    """v0, v1, v2 and back, each client reads the whole of it: times where records have some, headers where it can."""
    topic = "formats"
    create_topics(bootstrap, {topic: {"segment.bytes": "1000", "message.format.version": "0.9.0"}})
    stored: list[tuple[int, NewRow]] = []
    for number, (release, message_format) in enumerate([("0.9.0", 0), ("0.10.2", 1), ("2.0", 2), ("0.10.0", 1), ("2.4", 2)]):
        alter_topic(bootstrap, topic, {"message.format.version": release})
        new = [row._replace(headers=[("h", b"1")] if message_format == 2 else ()) for row in rows(6, NOW_MS + 100 * number)]
        (sent,) = LIBRARIES[number % 3].write(bootstrap, [Write(topic, new, ("none", "gzip")[number % 2], batch=3)])
        assert isinstance(sent, list), sent
        stored += [(message_format, row) for row in new]
    for reader in PYTHON_CLIENTS:
        if isinstance(reader, AioKafka):
            continue  # misreads a fetch of several formats, from Apache Kafka 2.4.1 too
        seen = reader.read(bootstrap, [topic])[topic]
        for offset, (row, (message_format, new)) in enumerate(zip(seen, stored, strict=True)):
            visible = min(message_format, reader.message_format)
            headers = tuple(new.headers) if visible == 2 else ()
            assert row == Row(offset, new.timestamp if visible else -1, 1 if visible else 0, new.key, new.value, headers), (
                f"{offset}, by {reader.name}"
            )


@pytest.mark.parametrize("library", LIBRARIES, ids=str)
def test_timestamp_type_switched_on_a_live_topic(bootstrap: str, library: Client) -> None:
    """Each record keeps the type that it came under; a look-up by time finds either kind."""
    topic = f"types-{library.name}"
    create_topics(bootstrap, {topic: {}})
    old_ms = NOW_MS - 60_000
    seen: list[Sent] = []
    for kind in ("CreateTime", "LogAppendTime", "CreateTime"):
        alter_topic(bootstrap, topic, {"message.timestamp.type": kind})
        (sent,) = library.write(bootstrap, [Write(topic, rows(4, old_ms + 10 * len(seen)), "none", batch=4)])
        assert isinstance(sent, list), sent
        seen += sent
    read = library.read(bootstrap, [topic])[topic]
    assert [row.timestamp_type for row in read] == [1] * 4 + [2] * 4 + [1] * 4
    assert [row.timestamp for row in read[:4] + read[8:]] == [*range(old_ms, old_ms + 4), *range(old_ms + 80, old_ms + 84)]
    append_ms = read[4].timestamp
    assert append_ms >= NOW_MS
    assert {row.timestamp for row in read[4:8]} == {append_ms}
    found = library.find(bootstrap, {topic: [old_ms + 2, old_ms + 4, append_ms, append_ms + 1]})[topic]
    assert [each and each.offset for each in found] == [2, 4, 4, None]
    assert [each and each.timestamp for each in found] == [old_ms + 2, append_ms, append_ms, None]


# --- refused


@pytest.mark.parametrize(
    ("config", "row", "codec", "errors"),
    [
        (
            {"message.timestamp.before.max.ms": "1000"},
            NewRow(None, b"old", NOW_MS - 3_600_000),
            "none",
            ("INVALID_TIMESTAMP", "InvalidTimestampError", "InvalidTimestampError"),
        ),
        (
            {"max.message.bytes": "1000"},
            NewRow(None, b"long" * 1000, NOW_MS),
            "none",
            ("MSG_SIZE_TOO_LARGE", "MessageSizeTooLargeError", "MessageSizeTooLargeError"),
        ),
        # aiokafka does not know that code.
        (
            {"cleanup.policy": "compact"},
            NewRow(None, b"no key", NOW_MS),
            "none",
            ("INVALID_RECORD", "InvalidRecordError", "UnknownError"),
        ),
        # On purpose: Kafka 2.4.1 says UNKNOWN_SERVER_ERROR.
        (
            {"message.format.version": "0.10.2"},
            NewRow(None, b"zstd" * 200, NOW_MS),
            "zstd",
            ("UNSUPPORTED_COMPRESSION_TYPE", "UnsupportedCompressionTypeError", "UnknownError"),
        ),
        (
            {"message.format.version": "0.10.2"},
            NewRow(None, b"headers", NOW_MS, [("h", b"1")]),
            "none",
            ("UNKNOWN", "UnknownError", "UnknownError"),
        ),
    ],
    ids=["too-old", "too-long", "no-key", "zstd-as-v1", "headers-as-v1"],
)
def test_refusals(
    bootstrap: str, request: pytest.FixtureRequest, config: dict[str, str], row: NewRow, codec: str, errors: tuple[str, ...]
) -> None:
    """Each library says the application which rule it was; nothing is written."""
    topic = f"refused-{request.node.callspec.id}"
    create_topics(bootstrap, {topic: config})
    assert tuple(library.write(bootstrap, [Write(topic, [row], codec)])[0] for library in LIBRARIES) == errors
    assert consume(bootstrap, topic) == []


# --- topics, positions


@pytest.mark.parametrize("library", LIBRARIES, ids=str)
def test_a_topic_is_made_when_it_is_written_to(bootstrap: str, library: Client) -> None:
    topic = f"made-by-{library.name}"
    (sent,) = library.write(bootstrap, [Write(topic, rows(3))])
    assert [each.offset for each in sent if not isinstance(each, str)] == [0, 1, 2]
    assert len(library.read(bootstrap, [topic])[topic]) == 3


def test_a_consumer_goes_on_where_the_log_begins_now(bootstrap: str) -> None:
    """Records are deleted under a consumer: out of range, and its own rule says where it goes on."""
    create_topics(bootstrap, {"shortened": {}})
    produce(bootstrap, "shortened", rows(20), batch_records=5)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    place = TopicPartition("shortened", 0, 12)
    assert admin.delete_records([place])[place].result(PATIENCE_S).low_watermark == 12
    settings = {"bootstrap.servers": bootstrap, "group.id": "tests", "enable.auto.commit": False, "log_level": 0}
    for reset, first in (("earliest", 12), ("error", None)):
        consumer = Consumer(settings | {"auto.offset.reset": reset})
        try:
            consumer.assign([TopicPartition("shortened", 0, 3)])
            message = consumer.poll(PATIENCE_S)
            if message is None:
                raise TimeoutError("neither a record nor an error")
            error = message.error()
            if first is None:
                assert error is not None
                assert error.code() == KafkaError._AUTO_OFFSET_RESET
            else:
                assert message.offset() == first
        finally:
            consumer.close()
    # Inside a batch that begins before: nothing of what is deleted is seen.
    assert [row.offset for row in consume(bootstrap, "shortened", start=12)] == list(range(12, 20))


def test_a_long_poll_ends_with_the_first_record(bootstrap: str) -> None:
    """A consumer that waits for ten minutes gets a record as soon as there is one, and others do not wake it."""
    create_topics(bootstrap, {"waited-for": {}, "other": {}})

    async def run() -> float:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap,
            fetch_max_wait_ms=LONG_MS,
            request_timeout_ms=2 * LONG_MS,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap)
        async with consumer, producer:
            consumer.assign([aiokafka.TopicPartition("waited-for", 0)])
            waiting = asyncio.ensure_future(consumer.getone())
            await producer.send_and_wait("other", b"not this")
            assert not waiting.done()
            sent_s = time.monotonic()
            await producer.send_and_wait("waited-for", b"this")
            assert (await waiting).value == b"this"
            return time.monotonic() - sent_s

    assert asyncio.run(run()) < PATIENCE_S


def test_many_partitions_in_one_fetch_session(bootstrap: str) -> None:
    """Partitions come and go while the session lasts; each record is seen once, in its partition's order."""
    create_topics(bootstrap, {"wide": {}}, partitions=120)
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "tests",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 20,
            "log_level": 0,
        }
    )
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "log_level": 0})
    seen: dict[int, list[bytes]] = {}

    def write(prefix: bytes) -> None:
        for number in range(120):
            producer.produce("wide", b"%s-%d" % (prefix, number), partition=number)
        assert producer.flush(PATIENCE_S) == 0

    def read(count: int) -> None:
        came = consumer.consume(count, PATIENCE_S)
        if len(came) < count:
            raise TimeoutError(f"{len(came)} of {count} records within {PATIENCE_S} s")
        for message in came:
            assert message.error() is None, message.error()
            seen.setdefault(int(message.partition() or 0), []).append(bytes(message.value() or b""))

    try:
        consumer.assign([TopicPartition("wide", number, 0) for number in range(120)])
        write(b"a")
        read(120)
        consumer.pause([TopicPartition("wide", number) for number in range(0, 120, 2)])
        write(b"b")
        read(60)
        consumer.resume([TopicPartition("wide", number) for number in range(0, 120, 2)])
        consumer.seek(TopicPartition("wide", 7, 0))
        read(62)
        assert not consumer.consume(1, 0.1)
    finally:
        consumer.close()
    expected = {number: [b"a-%d" % number, b"b-%d" % number] for number in range(120)}
    expected[7] *= 2
    assert seen == expected


def test_all_write_to_one_partition_while_all_read_it(bootstrap: str) -> None:
    """Each writer's records in its order; every reader sees the same log."""
    create_topics(bootstrap, {"shared": {"segment.bytes": "4000"}})
    count = 150

    def write(library: Client) -> None:
        new = [NewRow(library.name.encode(), b"%d" % number, NOW_MS + number) for number in range(count)]
        (sent,) = library.write(bootstrap, [Write("shared", new, "lz4", batch=7, idempotent=True)])
        assert len(sent) == count

    def read(library: Client) -> list[Row]:
        seen: list[Row] = []
        while len(seen) < count * len(LIBRARIES):
            seen = library.read(bootstrap, ["shared"])["shared"]
        return seen

    with ThreadPoolExecutor(2 * len(LIBRARIES)) as threads:
        writing = [threads.submit(write, library) for library in LIBRARIES]
        reading = [threads.submit(read, library) for library in LIBRARIES]
        for each in writing:
            each.result(PATIENCE_S)
        first, *others = [each.result(PATIENCE_S) for each in reading]
    assert [row.offset for row in first] == list(range(count * len(LIBRARIES)))
    for library in LIBRARIES:
        assert [row.value for row in first if row.key == library.name.encode()] == [b"%d" % number for number in range(count)]
    for seen in others:
        assert seen == first


# --- the broker goes and comes


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_idempotent_producers_go_on_when_the_broker_is_back(tmp_path: Path, end: str) -> None:
    """Each record is there once, in order, whatever happened to the broker while it was written."""
    broker = tidelog.Broker(tmp_path).start()
    try:
        bootstrap = broker.bootstrap_servers
        create_topics(bootstrap, {"kept": {}})
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 2,
                "batch.num.messages": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 50,
                "log_level": 0,
            }
        )
        failed: list[KafkaError] = []
        acknowledged: list[int] = []

        def delivered(error: KafkaError | None, message: object) -> None:
            (acknowledged.append(1) if error is None else failed.append(error))

        def send(first: int, count: int) -> None:
            for number in range(first, first + count):
                producer.produce("kept", b"%d" % number, partition=0, on_delivery=delivered)
                producer.poll(0)

        def until(condition: Callable[[], bool]) -> None:
            def holds() -> bool:
                producer.poll(0.05)
                return condition()

            wait_until(holds, "what was sent to be acknowledged")

        for round_ in range(2):
            send(600 * round_, 300)
            until(lambda: len(acknowledged) > 600 * round_)  # noqa: B023
            (broker.stop if end == "stop" else broker.kill)()
            send(600 * round_ + 300, 300)
            broker.start()
            until(lambda: len(acknowledged) == 600 * round_ + 600)  # noqa: B023
        assert failed == []
        assert [row.value for row in consume(bootstrap, "kept")] == [b"%d" % number for number in range(1200)]
    finally:
        broker.stop()
