"""Producers that remember what they were promised: an idempotent one, and one of transactions."""

from __future__ import annotations

import logging
import threading
import time
from array import array
from collections import Counter
from enum import IntEnum
from pathlib import Path
from random import Random
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer

from tests.cluster_soak.topics import PARTITIONS, TRANSACTED, place_of, time_of, value_of

GIVE_UP_S = 300
CALL_S = 30
PENDING, FAILED, SOMEWHERE = -1, -2, -3
"""In place of an offset. `SOMEWHERE`: acknowledged by a later one's success, without an offset (librdkafka's IMPLICITACK)."""
COMMON = {
    "acks": "all",
    "linger.ms": 5,
    "topic.metadata.refresh.interval.ms": 5000,
    "reconnect.backoff.max.ms": 500,
    "log_level": 0,
}


OF_EVERY_FETCH = ("FETCH ", "CONSUME ", "OFFSET ", "FETCHERR ", "DUMP")
"""What librdkafka logs again and again, and nobody needs."""


def file_logger(path: Path) -> logging.Logger:
    """Return a logger that writes to `path`, and nowhere else."""
    logger = logging.Logger(path.stem, logging.DEBUG)
    handler = logging.FileHandler(path)
    handler.addFilter(lambda line: not line.getMessage().startswith(OF_EVERY_FETCH))
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    logger.addHandler(handler)
    return logger


class IdempotentSender:
    """Sends numbered records at a steady rate, until `stop`."""

    def __init__(self, bootstrap: str, per_second: int, log: Path) -> None:
        # No record is given up before the faults of a soak are over: what nobody answers shows as a wait.
        settings = {"enable.idempotence": True, "delivery.timeout.ms": GIVE_UP_S * 1000, "queue.buffering.max.messages": 100_000}
        logged = {"log_level": 7, "debug": "eos", "logger": file_logger(log)}
        self._producer = Producer({"bootstrap.servers": bootstrap, **COMMON, **settings, **logged})
        self._per_second = per_second
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self._waiting: dict[int, float] = {}
        self._longest_s = 0.0
        self._thread = threading.Thread(target=self._send, name="sender", daemon=True)
        self.offsets = array("q")
        """By number: where the record was promised to be, `PENDING`, `FAILED` or `SOMEWHERE`."""
        self.errors: Counter[str] = Counter()
        self.acknowledged = 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """End, and wait for what is under way."""
        self.check_alive()
        self._stopped.set()
        self._thread.join()
        self._producer.flush(GIVE_UP_S)

    def check_alive(self) -> None:
        """A sender that has ended by itself has judged nothing since."""
        assert self._thread.is_alive()

    def longest_wait_s(self) -> float:
        """Return how long a record has waited for its answer since the last call; those still waiting count."""
        with self._lock:
            found, self._longest_s = self._longest_s, 0.0
            oldest = min(self._waiting.values(), default=None)
        return found if oldest is None else max(found, time.monotonic() - oldest)

    def _send(self) -> None:
        due, last = 0.0, time.monotonic()
        while not self._stopped.is_set():
            now = time.monotonic()
            # What a fault kept from being sent is not made up for: the rate stays.
            due = min(due + (now - last) * self._per_second, self._per_second)
            last = now
            while due >= 1 and self._one(len(self.offsets)):
                due -= 1
            self._producer.poll(0.005)

    def _one(self, number: int) -> bool:
        topic, partition = place_of(number)
        with self._lock:
            self._waiting[number] = time.monotonic()
        self.offsets.append(PENDING)
        try:
            self._producer.produce(
                topic,
                value_of(number),
                partition=partition,
                timestamp=time_of(number),
                on_delivery=lambda error, message: self._delivered(number, error, message),
            )
        except BufferError:  # It waits for a leader; so does this.
            self.offsets.pop()
            with self._lock:
                del self._waiting[number]
            return False
        return True

    def _delivered(self, number: int, error: KafkaError | None, message: Any) -> None:
        with self._lock:
            self._longest_s = max(self._longest_s, time.monotonic() - self._waiting.pop(number))
        if error is not None:
            self.offsets[number] = FAILED
            self.errors[str(error)] += 1
            return
        offset = message.offset()
        self.offsets[number] = SOMEWHERE if offset is None else offset
        self.acknowledged += 1


class Outcome(IntEnum):
    """Of a transaction, as its producer knows it."""

    UNKNOWN = 0
    COMMITTED = 1
    ABORTED = 2


class TransactionalSender:
    """Writes transactions of some records, one after another, and aborts every fifth, until `stop`."""

    def __init__(self, bootstrap: str, name: str, pause_s: float) -> None:
        self._bootstrap = bootstrap
        self._name = name
        self._pause_s = pause_s
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._send, name=name, daemon=True)
        self._chance = Random(name)
        self.sizes = array("q")
        """By number of the transaction: how many records it has."""
        self.outcomes = array("b")
        self.offsets: dict[tuple[int, int], bytes] = {}
        """Partition and offset of each record that was acknowledged within a committed transaction."""
        self.errors: Counter[str] = Counter()

    @property
    def committed(self) -> int:
        return sum(outcome == Outcome.COMMITTED for outcome in self.outcomes)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self.check_alive()
        self._stopped.set()
        self._thread.join()

    def check_alive(self) -> None:
        """As `IdempotentSender`."""
        assert self._thread.is_alive()

    def _send(self) -> None:
        producer = None
        while not self._stopped.is_set():
            try:
                if producer is None:
                    producer = self._new()
                self._transaction(producer)
            except KafkaException as error:
                # The next one of the same id ends what this one has begun.
                self.errors[str(error.args[0].name())] += 1
                producer = None
            self._stopped.wait(self._pause_s)

    def _new(self) -> Producer:
        settings = {"transactional.id": self._name, "transaction.timeout.ms": 60_000, "delivery.timeout.ms": 60_000}
        producer = Producer({"bootstrap.servers": self._bootstrap, **COMMON, **settings})
        self._patiently(producer.init_transactions)
        return producer

    def _transaction(self, producer: Producer) -> None:
        number, size = len(self.sizes), self._chance.randint(3, 20)
        aborts = self._chance.random() < 0.2
        self.sizes.append(size)
        self.outcomes.append(Outcome.UNKNOWN)
        offsets: dict[tuple[int, int], bytes] = {}

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is None and message.offset() is not None:
                offsets[message.partition(), message.offset()] = message.value()

        producer.begin_transaction()
        try:
            for index in range(size):
                partition = (number + index) % PARTITIONS[TRANSACTED]
                value = f"{self._name} {number} {index}".encode()
                producer.produce(TRANSACTED, value, partition=partition, on_delivery=delivered)
                producer.poll(0)
            if not aborts:
                self._patiently(producer.commit_transaction)
                self.outcomes[number] = Outcome.COMMITTED
                self.offsets |= offsets
                return
            # Records of an aborted transaction are to be in the log. (And librdkafka's abort is refused where its partitions are
            # not added yet because the transaction before it is not complete.)
            producer.flush(CALL_S)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            self.errors[str(error.args[0].name())] += 1
        self._patiently(producer.abort_transaction)
        self.outcomes[number] = Outcome.ABORTED

    @staticmethod
    def _patiently(call: Any) -> None:
        """Call it until it has an answer: it may be asked again where it says so."""
        end = time.monotonic() + GIVE_UP_S
        while True:
            try:
                call(CALL_S)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > end:
                    raise
                time.sleep(0.1)
