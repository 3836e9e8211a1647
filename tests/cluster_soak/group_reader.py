"""A consumer of a group that reads all the time, and notes where what it is sent contradicts itself.

librdkafka 2.16 can stop for good when a broker leaves the metadata: its OffsetForLeaderEpoch fails, and the callback asks for new
metadata while the same thread holds the client's lock. Such a consumer is left as it is, and another one takes its place.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
import time
from collections import defaultdict
from datetime import datetime
from pathlib import Path

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.cluster_soak.senders import file_logger
from tests.cluster_soak.topics import APPENDED, ORDERS, TRANSACTED, number_of

HUNG_S = 75.0
"""Longer than a session of the group and a broker that is paused."""


class GroupReader:
    """Reads with `read_committed`, and commits, until `stop`. Records of `ORDERS` and `APPENDED` come without gaps.

    `log` gets what librdkafka logs of the group and of offsets that it validates: why it has gone back, if it has.
    """

    def __init__(self, bootstrap: str, log: Path) -> None:
        self._config: dict[str, str | int | float | bool] = {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "auto.commit.interval.ms": 1000,
            "session.timeout.ms": 30_000,
            "topic.metadata.refresh.interval.ms": 5000,
            "reconnect.backoff.max.ms": 500,
            "check.crcs": True,
            "log_level": 7,
            "debug": "cgrp,fetch",
        }
        self._logger = file_logger(log)
        self._stopped = threading.Event()
        self._read_at = time.monotonic()
        self.hung = 0
        """Consumers that were replaced."""
        self._next: dict[tuple[str, int], int] = {}
        self._is_new: set[tuple[str, int]] = set()
        self.seen: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
        """By partition: the number of the record at an offset. (Transactions: the hash of its value.)"""
        self.count = 0
        self.wrong: list[str] = []

    def start(self) -> None:
        self._consumer = Consumer(self._config, logger=self._logger)
        self._consumer.subscribe([ORDERS, APPENDED, TRANSACTED], on_assign=self._assigned)
        self._read_at = time.monotonic()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._read, args=(self._consumer, self._stopped), name="reader", daemon=True)
        self._thread.start()

    def check_alive(self) -> None:
        """As `IdempotentSender`; a consumer that has hung is replaced."""
        assert self._thread.is_alive()
        if time.monotonic() - self._read_at > HUNG_S:
            self._stopped.set()
            self._thread.join()
            # To close it, or to free it, would wait for its thread.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._consumer))
            self.hung += 1
            self.start()

    def stop(self) -> None:
        assert self._thread.is_alive()
        self._stopped.set()
        self._thread.join()
        with contextlib.suppress(KafkaException):
            self._consumer.close()

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self._is_new |= {(one.topic, one.partition) for one in partitions}

    def _read(self, consumer: Consumer, stopped: threading.Event) -> None:
        while not stopped.is_set():
            for message in consumer.consume(500, 0.2):
                if message.error() is not None:
                    continue
                self._read_at = time.monotonic()
                place, offset, value = (
                    (str(message.topic()), int(message.partition() or 0)),
                    int(message.offset() or 0),
                    message.value(),
                )
                assert value is not None
                self._check_order(place, offset)
                known = self.seen[place]
                what = hash(value) if place[0] == TRANSACTED else number_of(value)
                if known.setdefault(offset, what) != what:
                    self.wrong.append(f"{place} {offset}: another record than before")
                self.count += 1

    def _check_order(self, place: tuple[str, int], offset: int) -> None:
        due = self._next.get(place, 0)
        self._next[place] = offset + 1
        # After an assignment a group goes on from what it has committed: back, once. What was fetched before may come first.
        is_back = offset < due and place not in self._is_new
        is_gap = offset > due and place[0] != TRANSACTED
        if offset < due or due == 0:
            self._is_new.discard(place)
        if is_back or is_gap:
            self.wrong.append(f"{datetime.now():%H:%M:%S.%f} {place}: {offset} was read where {due} comes next")
