"""Topics that a broker changes while they are read, and the facts that hold at each moment.

Record n of a topic is the same in every run (`LiveTopic.row`), and offset n holds record n: one idempotent producer writes them
in order. Each read can therefore be checked by arithmetic from three facts: the last acknowledged offset before the read, the log
start after it, and (for a compacted topic) the records still present much later.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]

from tests.kafka import Kafka391
from tests.kafka.clients import Row
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S

T = 1_600_000_000_000
SEGMENT_BYTES = 16_384

SETTINGS: dict[str, dict[str, str]] = {
    "grows": {},
    # Both ways of deleting a file: at once, and later as `.deleted`.
    "shrinks": {"retention.bytes": "150000", "file.delete.delay.ms": "0"},
    "shrinks-later": {"retention.bytes": "150000", "file.delete.delay.ms": "500"},
    "compacts": {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "delete.retention.ms": "0",
        "file.delete.delay.ms": "0",
    },
}
BASE = {"segment.bytes": str(SEGMENT_BYTES), "index.interval.bytes": "512", "segment.index.bytes": "2400", "retention.ms": "-1"}
BROKER = {
    "log.initial.task.delay.ms": "100",
    "log.retention.check.interval.ms": "100",
    "log.cleaner.backoff.ms": "50",
    "log.flush.start.offset.checkpoint.interval.ms": "200",
    "replica.high.watermark.checkpoint.interval.ms": "200",
}


class LiveTopic:
    """A topic with one partition: its computed records, and the number of acknowledged ones."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.produced = 0
        self.acknowledged = 0
        self.errors: list[KafkaError] = []
        self.is_killed = False
        """Its broker was killed under an unanswered request: what is sent from then on Kafka and librdkafka may store twice."""

    def timestamp(self, n: int) -> int:
        """Timestamps advance by 10 ms per record; one in thirteen is up to 20 s late."""
        late = (n * 7919 % 20_000) if n % 13 == 5 else 0
        return T + n * 10 - late

    def key(self, n: int) -> bytes:
        """A few recurring keys, and a unique key for every tenth record, which survives compaction."""
        return b"only-%d" % n if n % 10 == 0 else b"key-%d" % (n * n % 40)

    def row(self, n: int) -> Row:
        """Return record n as a reader must see it."""
        headers = (("n", b"%d" % n), ("none", None)) if n % 3 == 0 else ()
        return Row(n, self.timestamp(n), 1, self.key(n), b"%s %d " % (self.name.encode(), n) + b"x" * (n % 90), headers)

    def produce(self, producer: Producer, count: int) -> None:
        """Send the next records with `producer`."""
        end = time.monotonic() + PATIENCE_S
        for n in range(self.produced, self.produced + count):
            while not self._is_taken(producer, self.row(n)):
                if time.monotonic() > end:
                    raise TimeoutError(f"{self.name} is not known to its producer")
                producer.poll(0.05)
        self.produced += count

    def _is_taken(self, producer: Producer, row: Row) -> bool:
        headers: Any = list(row.headers) or None
        try:
            producer.produce(
                self.name, row.value, row.key, 0, timestamp=row.timestamp, headers=headers, on_delivery=self._delivered
            )
        except KafkaException as error:
            # A broker of 2.4.1 that was just started answers before its controller has named it all topics.
            if error.args[0].code() != KafkaError._UNKNOWN_TOPIC:
                raise
            return False
        return True

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
        elif message.offset() == self.acknowledged or self.is_killed:
            self.acknowledged += 1
        else:
            raise AssertionError(f"{self.name}: offset {message.offset()} acknowledged after {self.acknowledged - 1}")

    def first_reaching(self, target: int, start: int, end: int) -> int | None:
        """Return the first n in [start, end) whose timestamp is at least `target`."""
        return next((n for n in range(start, end) if self.timestamp(n) >= target), None)

    def log_start(self, broker: Kafka391) -> int:
        """Return the current log start. The broker removes a segment's files a moment before it reports the new start."""
        place = TopicPartition(self.name, 0)
        earliest = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
        answered: int = broker.admin.list_offsets({place: earliest}, request_timeout=PATIENCE_S)[place].result(PATIENCE_S).offset
        return max(answered, min(int(path.stem) for path in broker.partition_folder(self.name).glob("*.log")))


class Writer:
    """A thread that produces to all topics until the context ends, in varying batches of one to thirty records."""

    def __init__(self, broker: Kafka391, topics: Sequence[LiveTopic], rounds_s: float = 0.02, **settings: object) -> None:
        config: dict[str, object] = {
            "bootstrap.servers": broker.bootstrap,
            "enable.idempotence": True,
            "linger.ms": 1,
            # A broker that was killed and is back is found again at once.
            "reconnect.backoff.max.ms": 1000,
            "batch.num.messages": 30,
            "log_level": 0,
        }
        self._producer = Producer(config | {key.replace("_", "."): value for key, value in settings.items()})
        self._topics = topics
        self._rounds_s = rounds_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._failure: BaseException | None = None

    def __enter__(self) -> Writer:
        # A broker that has just started may not know its topics yet, and the client takes no partitions for an answer.
        wait_until(self._knows_topics, "the topics' partitions", PATIENCE_S)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(2 * PATIENCE_S)
        left = self._producer.flush(2 * PATIENCE_S)
        if self._failure is not None:
            raise self._failure
        if left:
            raise TimeoutError(f"{left} records unacknowledged")
        assert not any(topic.errors for topic in self._topics), [topic.errors[:1] for topic in self._topics]

    def _knows_topics(self) -> bool:
        names = [topic.name for topic in self._topics]
        try:
            return all(self._producer.list_topics(name, timeout=PATIENCE_S).topics[name].partitions for name in names)
        except KafkaException:
            return False

    def _run(self) -> None:
        try:
            turn = 0
            while not self._stopped.wait(self._rounds_s):
                for topic in self._topics:
                    topic.produce(self._producer, 1 + turn * 7 % 30)
                self._producer.poll(0)
                if turn % 5 == 0:
                    self._producer.flush(PATIENCE_S)
                turn += 1
        except BaseException as failure:
            self._failure = failure


def create(broker: Kafka391, settings: Mapping[str, Mapping[str, str]] = SETTINGS) -> list[LiveTopic]:
    """Create the topics."""
    for name, config in settings.items():
        broker.create_topic(name, config=BASE | dict(config))
    return [LiveTopic(name) for name in settings]


def wait_acknowledged(topics: Sequence[LiveTopic], count: int, timeout_s: float = PATIENCE_S) -> None:
    """Wait until each topic has that many records."""
    end = time.monotonic() + timeout_s
    while min(topic.acknowledged for topic in topics) < count:
        if time.monotonic() > end:
            raise TimeoutError([(topic.name, topic.acknowledged, topic.errors[:1]) for topic in topics])
        time.sleep(0.05)
