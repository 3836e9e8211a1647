"""Measures what clients notice of a cluster, second by second: acknowledgements of a producer with acks=all, and leaders."""

from __future__ import annotations

import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from tests.kafka.clients import make_topics

TOPIC = "orders"
PARTITIONS = 6
GIVE_UP_S = 120


@dataclass
class Second:
    """The acknowledgements of one second."""

    acknowledged: int = 0
    longest_wait_s: float = 0.0
    errors: Counter[str] = field(default_factory=Counter)


class Load:
    """Sends numbered records at a steady rate to all partitions, acks=all, until `stop`."""

    def __init__(self, bootstrap: str, per_second: int, *, is_idempotent: bool = True) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": is_idempotent,
                "linger.ms": 5,
                "delivery.timeout.ms": GIVE_UP_S * 1000,
                "topic.metadata.refresh.interval.ms": 1000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
            }
        )
        self._per_second = per_second
        self._lock = threading.Lock()
        self._second = Second()
        self._sent_at: dict[int, float] = {}
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._send, name="load", daemon=True)
        self.sent = 0
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        """The value of each acknowledged record, by partition and offset."""
        self.failed = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait for the records in flight."""
        self._stopped.set()
        self._thread.join()
        self._producer.flush(GIVE_UP_S)

    def second(self) -> Second:
        """Return the acknowledgements since the last call. A record still in flight counts with its wait so far."""
        with self._lock:
            found, self._second = self._second, Second()
            oldest = min(self._sent_at.values(), default=None)
        if oldest is not None:
            found.longest_wait_s = max(found.longest_wait_s, time.monotonic() - oldest)
        return found

    def _send(self) -> None:
        began = time.monotonic()
        while not self._stopped.is_set():
            due = int((time.monotonic() - began) * self._per_second)
            while self.sent < due:
                number = self.sent
                with self._lock:
                    self._sent_at[number] = time.monotonic()
                try:
                    self._producer.produce(
                        TOPIC,
                        b"order %d" % number,
                        partition=number % PARTITIONS,
                        on_delivery=lambda error, message, number=number: self._delivered(number, error, message),
                    )
                except BufferError:  # The queue is full while the producer waits for a leader.
                    with self._lock:
                        del self._sent_at[number]
                    break
                self.sent += 1
            self._producer.poll(0.005)

    def _delivered(self, number: int, error: object, message: object) -> None:
        with self._lock:
            waited = time.monotonic() - self._sent_at.pop(number)
            if error is not None:
                self.failed += 1
                self._second.errors[str(error)] += 1
                return
            place = message.partition(), message.offset()  # type: ignore[attr-defined]
            self.acknowledged[place] = message.value()  # type: ignore[attr-defined]
            self._second.acknowledged += 1
            self._second.longest_wait_s = max(self._second.longest_wait_s, waited)


class Watch:
    """The leaders and in-sync replicas, as the cluster's brokers report them."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})

    def create(self, replicas: int) -> None:
        """Create the topic, and wait until all of its partitions have leaders and all replicas are in sync."""
        wanted = NewTopic(TOPIC, PARTITIONS, replicas, config={"min.insync.replicas": "2"})
        make_topics(self._bootstrap, [wanted])
        self.wait_in_sync(replicas)

    def wait_in_sync(self, replicas: int) -> float:
        """Wait until all partitions have this many replicas in sync; return the seconds that it took."""
        began = time.monotonic()
        while self.fewest_in_sync() < replicas:
            if time.monotonic() - began > GIVE_UP_S:
                raise TimeoutError(f"{GIVE_UP_S} s, and still not {replicas} replicas in sync")
            time.sleep(0.1)
        return time.monotonic() - began

    def leaders(self) -> Counter[int]:
        """Return how many partitions each broker leads; -1 for those without a leader."""
        return Counter(partition.leader for partition in self._partitions())

    def fewest_in_sync(self) -> int:
        """Return the smallest number of in-sync replicas of any partition; 0 if no broker answers."""
        return min((len(partition.isrs) for partition in self._partitions()), default=0)

    def brokers(self) -> int:
        """Return the number of brokers."""
        try:
            return len(self._admin.list_topics(timeout=5).brokers)
        except KafkaException:
            return 0

    def _partitions(self) -> list[object]:
        try:
            topics = self._admin.list_topics(timeout=5).topics
        except KafkaException:
            return []
        return list(topics[TOPIC].partitions.values()) if TOPIC in topics else []


def read_back(bootstrap: str) -> dict[tuple[int, int], bytes]:
    """Read the whole topic; return the values by partition and offset."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "read-back", "enable.auto.commit": False, "log_level": 0})
    found = {}
    try:
        ends = {n: consumer.get_watermark_offsets(TopicPartition(TOPIC, n), timeout=30)[1] for n in range(PARTITIONS)}
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        at = dict.fromkeys(range(PARTITIONS), 0)
        end = time.monotonic() + GIVE_UP_S
        while any(at[partition] < ends[partition] for partition in at) and time.monotonic() < end:
            for message in consumer.consume(1000, timeout=1):
                if message.error() is None:
                    found[message.partition(), message.offset()] = message.value()
                    at[message.partition()] = message.offset() + 1
    finally:
        consumer.close()
    return found
