"""One interface for several client libraries: each writes topics, reads assigned partitions, and looks up offsets by time.

| class | library | message format | zstd | lz4 in v0 |
|---|---|---|---|---|
| `Librdkafka` | confluent-kafka | v2 | yes | yes |
| `KafkaPython` | kafka-python; also as if the broker were of 0.9 or 0.10.0 | v2, no null headers; v0; v1 | yes; no | no |
| `AioKafka` | aiokafka | v2 | yes | no |
| `java_clients.JavaClient` | Apache Kafka's own, of five releases | v2 from 0.11 on, else v1 | from 2.1 on | yes |

The message format is the newest that the library supports: the broker down-converts newer ones. None of them joins a group or
commits. A topic has one partition here, if nothing else is said.
"""

from __future__ import annotations

import abc
import asyncio
import contextlib
import gc
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import aiokafka
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from tests.kafka.clients import NewRow, Row, consume_all, flush, list_offsets
from tests.patience import PATIENCE_S

with warnings.catch_warnings():
    # kafka-python reads files of its package in a way that Python 3.11 calls old.
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Write(NamedTuple):
    """Records for a topic. What lingers is sent after each `batch` records: a batch has that many, or is split."""

    topic: str
    rows: Sequence[NewRow]
    codec: str = "none"
    batch: int = 10
    idempotent: bool = False


class Sent(NamedTuple):
    """What a producer is passed a record: its offset; the time that it has in the log."""

    offset: int
    timestamp: int


class Found(NamedTuple):
    """The first record at or after a time, as the broker answered."""

    offset: int
    timestamp: int


class Seen(NamedTuple):
    """By topic: all records; the answers to the times that were asked for; the records of those read by read_committed."""

    rows: dict[str, list[Row]]
    found: dict[str, list[Found | None]]
    committed: dict[str, list[Row]]


class Client(abc.ABC):
    """See the module."""

    name: str
    message_format = 2
    """The newest that it writes and reads: v1 and v2 have timestamps, v2 has headers."""
    finds_by_time = True
    has_null_headers = True
    codecs: tuple[str, ...] = CODECS
    codecs_v0: tuple[str, ...] = CODECS[:-1]
    """What it reads in message format v0, whose lz4 frames have headers with a wrong checksum."""

    def __repr__(self) -> str:
        return self.name

    @abc.abstractmethod
    def write(self, bootstrap: str, writes: Sequence[Write]) -> list[list[Sent] | str]:
        """Write each; what the library was passed each record, in order, or the name of the error that it raised."""

    @abc.abstractmethod
    def read(self, bootstrap: str, topics: Iterable[str], isolation: str = "read_uncommitted") -> dict[str, list[Row]]:
        """Read these topics from their beginning to their end, by one consumer."""

    @abc.abstractmethod
    def find(self, bootstrap: str, times: Mapping[str, Sequence[int]]) -> dict[str, list[Found | None]]:
        """Ask for the offsets of the first time of each topic, then of the second, and so on; None: there is no such record."""

    def look(
        self, bootstrap: str, topics: Iterable[str], times: Mapping[str, Sequence[int]], committed: Iterable[str] = ()
    ) -> Seen:
        """All of it; in one program where that takes its time to start."""
        committed = list(committed)
        return Seen(
            self.read(bootstrap, topics),
            self.find(bootstrap, times),
            self.read(bootstrap, committed, "read_committed") if committed else {},
        )


class Librdkafka(Client):
    name = "librdkafka"

    def write(self, bootstrap: str, writes: Sequence[Write]) -> list[list[Sent] | str]:
        return [self._write(bootstrap, write) for write in writes]

    def _write(self, bootstrap: str, write: Write) -> list[Sent] | str:
        producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": write.codec,
                "enable.idempotence": write.idempotent,
                "linger.ms": 1000,
                "log_level": 0,
            }
        )
        sent: list[Sent] = []
        failed: list[str] = []

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is None:
                sent.append(Sent(message.offset(), message.timestamp()[1]))
            else:
                failed.append(str(error.name()))

        for number, row in enumerate(write.rows, 1):
            producer.produce(
                write.topic,
                row.value,
                row.key,
                0,
                timestamp=row.timestamp,
                headers=list(row.headers) or None,
                on_delivery=delivered,
            )
            if number % write.batch == 0:
                flush(producer)
        flush(producer)
        return failed[0] if failed else sent

    def read(self, bootstrap: str, topics: Iterable[str], isolation: str = "read_uncommitted") -> dict[str, list[Row]]:
        return consume_all(bootstrap, topics, isolation=isolation)

    def find(self, bootstrap: str, times: Mapping[str, Sequence[int]]) -> dict[str, list[Found | None]]:
        """Asks its consumer, which says no timestamps, and its admin client, which does; both must say the same."""
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "tests", "log_level": 0})
        admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        try:
            answers: dict[str, list[Found | None]] = {topic: [] for topic in times}
            for wanted in in_turn(times):
                found = list_offsets(admin, {topic: OffsetSpec.for_timestamp(each) for topic, each in wanted.items()})
                # The consumer's request fails as a whole where one partition refuses.
                answered = {topic: answer for topic, answer in found.items() if not isinstance(answer, int)}
                assert {found[topic] for topic in found.keys() - answered} <= {KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT}
                places = [TopicPartition(topic, 0, wanted[topic]) for topic in answered]
                for place in consumer.offsets_for_times(places, timeout=PATIENCE_S):
                    assert place.offset == answered[place.topic][0], f"{place.topic}: {answered[place.topic]}, but {place.offset}"
                for topic in wanted:
                    offset, timestamp = answered.get(topic, (-1, -1))
                    answers[topic].append(None if offset == -1 else Found(offset, timestamp))
            return answers
        finally:
            consumer.close()


class KafkaPython(Client):
    """With `api_version` it asks for nothing that a broker of that release has not: an old client."""

    has_null_headers = False
    codecs_v0 = ("none", "gzip", "snappy")

    def __init__(self, api_version: tuple[int, ...] | None = None) -> None:
        self.name = "kafka-python"
        self.settings: dict[str, Any] = {}
        if api_version is not None:
            self.name += f"-as-{'.'.join(map(str, api_version))}"
            self.settings["api_version"] = api_version
            self.message_format = 0 if api_version < (0, 10) else 1 if api_version < (0, 11) else 2
            self.codecs = CODECS[:-1] if self.message_format else self.codecs_v0
            self.finds_by_time = api_version >= (0, 10, 1)

    def write(self, bootstrap: str, writes: Sequence[Write]) -> list[list[Sent] | str]:
        with unclosed_sockets_ignored():
            return [self._write(bootstrap, write) for write in writes]

    def _write(self, bootstrap: str, write: Write) -> list[Sent] | str:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if write.codec == "none" else write.codec,
            enable_idempotence=write.idempotent,
            linger_ms=1000,
            **self.settings,
        )
        try:
            futures = []
            for number, row in enumerate(write.rows, 1):
                headers = list(row.headers) or None
                futures.append(producer.send(write.topic, row.value, row.key, headers, partition=0, timestamp_ms=row.timestamp))
                if number % write.batch == 0:
                    producer.flush(PATIENCE_S)
            producer.flush(PATIENCE_S)
            told = [future.get(PATIENCE_S) for future in futures]
        except kafka.errors.KafkaError as error:
            return type(error).__name__
        finally:
            producer.close(PATIENCE_S)
        return [Sent(each.offset, each.timestamp) for each in told]

    def read(self, bootstrap: str, topics: Iterable[str], isolation: str = "read_uncommitted") -> dict[str, list[Row]]:
        with unclosed_sockets_ignored(), contextlib.closing(self._consumer(bootstrap, isolation_level=isolation)) as consumer:
            places = {kafka.TopicPartition(topic, 0): topic for topic in topics}
            ends = consumer.end_offsets(list(places))
            rows: dict[str, list[Row]] = {topic: [] for topic in places.values()}
            consumer.assign(list(places))
            consumer.seek_to_beginning(*places)
            deadline = time.monotonic() + PATIENCE_S
            while any(consumer.position(place) < end for place, end in ends.items()):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{self.name} never got to the ends")
                for place, records in consumer.poll(500).items():
                    rows[places[place]] += [_python_row(record) for record in records]
            return rows

    def find(self, bootstrap: str, times: Mapping[str, Sequence[int]]) -> dict[str, list[Found | None]]:
        with unclosed_sockets_ignored(), contextlib.closing(self._consumer(bootstrap)) as consumer:
            answers: dict[str, list[Found | None]] = {topic: [] for topic in times}
            for wanted in in_turn(times):
                places = {kafka.TopicPartition(topic, 0): each for topic, each in wanted.items()}
                for place, found in consumer.offsets_for_times(places).items():
                    answers[place.topic].append(Found(found.offset, found.timestamp) if found else None)
            return answers

    def _consumer(self, bootstrap: str, **more: Any) -> Any:
        return kafka.KafkaConsumer(
            bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="none", **self.settings, **more
        )


@contextlib.contextmanager
def unclosed_sockets_ignored() -> Iterator[None]:
    """kafka-python now and then leaves a socket to the garbage collector, when it is closed while it connects anew."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


class AioKafka(Client):
    name = "aiokafka"
    codecs_v0 = ("none", "gzip", "snappy")

    def write(self, bootstrap: str, writes: Sequence[Write]) -> list[list[Sent] | str]:
        async def run() -> list[list[Sent] | str]:
            return [await self._write(bootstrap, write) for write in writes]

        return asyncio.run(run())

    async def _write(self, bootstrap: str, write: Write) -> list[Sent] | str:
        producer = aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap,
            compression_type=None if write.codec == "none" else write.codec,
            enable_idempotence=write.idempotent,
        )
        await producer.start()
        try:
            told = []
            for number in range(0, len(write.rows), write.batch):
                futures = [
                    await producer.send(
                        write.topic, row.value, row.key, 0, timestamp_ms=row.timestamp, headers=list(row.headers) or None
                    )
                    for row in write.rows[number : number + write.batch]
                ]
                told += await asyncio.gather(*futures)
        except aiokafka.errors.KafkaError as error:
            return type(error).__name__
        finally:
            await producer.stop()
        return [Sent(each.offset, each.timestamp) for each in told]

    def read(self, bootstrap: str, topics: Iterable[str], isolation: str = "read_uncommitted") -> dict[str, list[Row]]:
        return asyncio.run(self._read(bootstrap, topics, isolation))

    async def _read(self, bootstrap: str, topics: Iterable[str], isolation: str) -> dict[str, list[Row]]:
        places = {aiokafka.TopicPartition(topic, 0): topic for topic in topics}
        rows: dict[str, list[Row]] = {topic: [] for topic in places.values()}
        async with self._consumer(bootstrap, isolation_level=isolation) as consumer:
            # Assigned first, it asks for the metadata of all topics at once.
            consumer.assign(list(places))
            ends = await consumer.end_offsets(list(places))
            await consumer.seek_to_beginning(*places)
            deadline = time.monotonic() + PATIENCE_S
            while any([await consumer.position(place) < end for place, end in ends.items()]):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{self.name} never got to the ends")
                for place, records in (await consumer.getmany(timeout_ms=500)).items():
                    rows[places[place]] += [_python_row(record) for record in records]
        return rows

    def find(self, bootstrap: str, times: Mapping[str, Sequence[int]]) -> dict[str, list[Found | None]]:
        return asyncio.run(self._find(bootstrap, times))

    async def _find(self, bootstrap: str, times: Mapping[str, Sequence[int]]) -> dict[str, list[Found | None]]:
        answers: dict[str, list[Found | None]] = {topic: [] for topic in times}
        async with self._consumer(bootstrap) as consumer:
            consumer.assign([aiokafka.TopicPartition(topic, 0) for topic in times])
            for wanted in in_turn(times):
                places = {aiokafka.TopicPartition(topic, 0): each for topic, each in wanted.items()}
                for place, found in (await consumer.offsets_for_times(places)).items():
                    answers[place.topic].append(Found(found.offset, found.timestamp) if found else None)
        return answers

    @staticmethod
    def _consumer(bootstrap: str, **more: Any) -> Any:
        return aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, auto_offset_reset="none", **more)


PYTHON_CLIENTS: tuple[Client, ...] = (Librdkafka(), KafkaPython(), AioKafka(), KafkaPython((0, 9)), KafkaPython((0, 10, 0)))


def in_turn(times: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
    """The first time of each topic, the second of each; a topic that has fewer is left out."""
    most = max((len(wanted) for wanted in times.values()), default=0)
    return [{topic: wanted[turn] for topic, wanted in times.items() if turn < len(wanted)} for turn in range(most)]


def _python_row(record: Any) -> Row:
    """Both Python libraries number the types from 0 (CreateTime), and have None where a record has no time."""
    none = record.timestamp is None or record.timestamp == -1
    headers = tuple((name, None if value is None else bytes(value)) for name, value in record.headers or ())
    return Row(
        record.offset,
        -1 if none else record.timestamp,
        0 if none else record.timestamp_type + 1,
        None if record.key is None else bytes(record.key),
        None if record.value is None else bytes(record.value),
        headers,
    )
