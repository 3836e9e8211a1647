"""A run of copiers in one group, what is done to them and to their broker meanwhile, and the count: every record once, in order.

A record's value is `<partition>:<number>`, its copy's `<partition>:<number>:<offset>`. The source has aborted records, too, which
nobody may copy. It grows by a share before each disturbance, so that all are busy when it comes.

`Copying.watch` reads the target with read_committed all along and fails at the first record that is not the next one of its
partition: a copy that is lost, doubled or out of order is found when it happens.

| disturbance | |
|---|---|
| `broker_dies`, `broker_restarts` | killed, or stopped in order, and started again |
| `copier_dies` | one of them, killed; another of its transactional id follows |
| `joins`, `leaves` | a copier more, one less |
| `pause` | a copier stands still until the group has gone on without it; then it wakes up in the middle of what it did |
"""

from __future__ import annotations

import itertools
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from tests.broker.eos.copier import FENCED, STUCK, insist
from tests.broker.eos.processes import Endpoint, Program
from tests.kafka.clients import commit_offsets, create_topics
from tests.kafka.java import wait_until
from tests.patience import PATIENCE_S

GROUP = "copiers"
SOURCE, TARGET = "source", "target"
GIVEN_UP = (FENCED, STUCK)
LOOK_S = 0.02

Launch = Callable[[str, str, int], Program]
"""Starts a copier: the broker's address, the transactional id, a number to seed it with."""


class Copying:
    """See the module. `records` are those of each partition."""

    def __init__(
        self, broker: Endpoint, launch: Launch, *, partitions: int, records: int, seed: int, copiers: int = 1, replicas: int = 1
    ) -> None:
        self.broker = broker
        self.launch = launch
        self.partitions = partitions
        self.records = records
        self.rng = random.Random(seed)
        self.counts: Counter[str] = Counter()
        self._seeds = itertools.count(seed)
        create_topics(broker.bootstrap, {SOURCE: {}, TARGET: {}}, partitions, replicas)
        # Whoever is passed no offset later is reported wrong.
        commit_offsets(broker.bootstrap, GROUP, [TopicPartition(SOURCE, partition, 0) for partition in range(partitions)])
        self.writer = Producer(
            {
                "bootstrap.servers": broker.bootstrap,
                "transactional.id": "source",
                "linger.ms": 5,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        insist(self.writer.init_transactions, PATIENCE_S)
        self.written = 0
        self.seen = [0] * partitions
        self.watcher = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": "watcher",
                "auto.offset.reset": "error",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "fetch.wait.max.ms": 20,
                "fetch.error.backoff.ms": 20,
                "log_level": 0,
            }
        )
        self.watcher.assign([TopicPartition(TARGET, partition, OFFSET_BEGINNING) for partition in range(partitions)])
        self.copiers: dict[str, Program] = {}
        self.paused: set[str] = set()
        for _ in range(copiers):
            self.joins()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for each in self.copiers.values():
            each.kill()
        self.watcher.close()
        # librdkafka may abort the process where the coordinator of a producer that lives leaves the cluster for good.
        del self.writer

    def run(self, disturbances: Sequence[str]) -> None:
        """Copy everything; the disturbances come one after the other, at random moments of their share of the way."""
        share = self.records // (len(disturbances) + 1)
        for name in disturbances:
            before = self.written
            self._write_source(self.written + share)
            self.watch(self.partitions * self.rng.randint(before, before + share * 2 // 3))
            self._watch_for(self.rng.random() * 0.02)
            self.counts["busy"] += sum(self.seen) < self.partitions * self.written
            getattr(self, name)()
            self.counts[name] += 1
        self._write_source(self.records)
        self.watch(self.partitions * self.records)
        for name in sorted(self.paused):
            self._resume(name)
        self._check_running()
        for each in self.copiers.values():
            self._end(each)
        self.check()

    def watch(self, records: int) -> None:
        """Read the target until this many records of all partitions are there."""
        silent_s = 0.0
        while sum(self.seen) < records:
            self._check_running()
            before = sum(self.seen)
            self._watch_for(LOOK_S)
            silent_s = 0.0 if sum(self.seen) > before else silent_s + LOOK_S
            if silent_s > PATIENCE_S:
                for each in self.copiers.values():
                    each.show_stacks()
                self._watch_for(1)
                said = "\n".join(f"{name}: {each.tail()}" for name, each in self.copiers.items())
                raise TimeoutError(f"no more than {self.seen} of {self.written}: {self._reported()}\n{said}")

    def _watch_for(self, seconds: float) -> None:
        for message in self.watcher.consume(50, seconds):
            error = message.error()
            assert error is None or error.code() != KafkaError._AUTO_OFFSET_RESET, f"the target became shorter: {error}"
            if error is None:
                self._see(message.partition() or 0, message.value() or b"")

    def _see(self, partition: int, value: bytes) -> None:
        found = value.rpartition(b":")[0]
        expected = b"%d:%d" % (partition, self.seen[partition])
        assert found == expected, f"partition {partition}: {value!r} where {expected!r} comes next; {self._reported()}"
        self.seen[partition] += 1

    def check(self) -> None:
        """Count again, from the beginning; no transaction is open, and the group stands at the source's ends."""
        self.seen = [0] * self.partitions
        places = [TopicPartition(TARGET, partition, OFFSET_BEGINNING) for partition in range(self.partitions)]
        for partition, value in self._read(places):
            self._see(partition, value)
        assert self.seen == [self.records] * self.partitions
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap, "log_level": 0})
        places = [TopicPartition(topic, partition) for topic in (SOURCE, TARGET) for partition in range(self.partitions)]
        specs = {place: OffsetSpec.latest() for place in places}  # type: ignore[no-untyped-call]

        def ends_of(isolation: IsolationLevel) -> dict[TopicPartition, int]:
            told = admin.list_offsets(specs, isolation_level=isolation, request_timeout=PATIENCE_S)
            return {place: future.result(PATIENCE_S).offset for place, future in told.items()}

        def is_settled() -> bool:
            return ends_of(IsolationLevel.READ_UNCOMMITTED) == ends_of(IsolationLevel.READ_COMMITTED)

        # Markers may come after the answer to whoever has ended a transaction.
        wait_until(is_settled, "the end of all transactions", PATIENCE_S)
        ends = ends_of(IsolationLevel.READ_UNCOMMITTED)
        asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)], request_timeout=PATIENCE_S)
        committed = {each.partition: each.offset for each in asked[GROUP].result(PATIENCE_S).topic_partitions}
        assert committed.keys() == set(range(self.partitions))
        left = self._read([TopicPartition(SOURCE, partition, offset) for partition, offset in committed.items()])
        assert left == [], f"committed {committed}, and these are behind it: {left[:3]}"
        self.counts["uncommitted"] = sum(ends[place] for place in places if place.topic == TARGET) - sum(self.seen)

    def _read(self, places: list[TopicPartition]) -> list[tuple[int, bytes]]:
        """Read partitions from offsets to their ends, with read_committed: each record's partition and value."""
        config = {"bootstrap.servers": self.broker.bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
        consumer = Consumer(config | {"enable.auto.commit": False, "enable.partition.eof": True, "log_level": 0})
        found: list[tuple[int, bytes]] = []
        ends: set[int | None] = set()
        try:
            consumer.assign(places)
            while len(ends) < len(places):
                message = consumer.poll(PATIENCE_S)
                if message is None:
                    raise TimeoutError(f"the broker sent nothing; {ends} are at their ends")
                error = message.error()
                if error is None:
                    found.append((message.partition() or 0, message.value() or b""))
                elif error.code() == KafkaError._PARTITION_EOF:
                    ends.add(message.partition())
                else:
                    raise KafkaException(error)
        finally:
            consumer.close()
        return found

    # --- disturbances ---

    def joins(self) -> None:
        name = f"copier-{self.counts['started']}"
        self.counts["started"] += 1
        self._launch(name)

    def leaves(self) -> None:
        if len(self.copiers) > 1:
            self._end(self.copiers.pop(self._any()))

    def _end(self, copier: Program) -> None:
        status = copier.stop()
        assert status in (0, *GIVEN_UP), f"status {status}: {copier.events[-3:]} {copier.tail()}"
        self.counts.update(event[0] for event in copier.events)

    def broker_dies(self) -> None:
        self.broker.kill()
        self.broker.start()

    def broker_restarts(self) -> None:
        self.broker.stop()
        self.broker.start()

    def copier_dies(self) -> None:
        name = self._any()
        self.copiers[name].kill()
        self.counts.update(event[0] for event in self.copiers[name].look())
        self._launch(name)

    def pause(self) -> None:
        if len(self.copiers) == 1:
            return
        name = self._any()
        self.copiers[name].pause()
        self.paused.add(name)
        # More to do: past the end of its session, and of its transaction's time, the others do it.
        more = self.records // 10
        self.records += more
        self._write_source(self.written + more)
        self.watch(self.partitions * self.written)
        self._resume(name)

    def _resume(self, name: str) -> None:
        self.copiers[name].resume()
        self.paused.discard(name)

    def _any(self) -> str:
        return self.rng.choice(sorted(self.copiers))

    def _launch(self, name: str) -> None:
        self.copiers[name] = self.launch(self.broker.bootstrap, name, next(self._seeds))
        self.copiers[name].expect("ready")

    def _check_running(self) -> None:
        """One that was fenced, or stuck, is followed by another of its id, as a supervisor would do; no other end is allowed."""
        for name, each in list(self.copiers.items()):
            status = each.ended()
            if status is not None:
                assert status in GIVEN_UP, f"{name} ended with {status}: {each.look()[-3:]} {each.tail()}"
                self.counts.update(event[0] for event in each.look())
                self._launch(name)

    def _reported(self) -> str:
        told = {name: each.look()[-3:] for name, each in self.copiers.items()}
        return f"{dict(self.counts)} {told}"

    def _write_source(self, records: int) -> None:
        """Bring each partition to so many records that count, after an aborted transaction."""
        insist(self.writer.begin_transaction)
        for partition in range(self.partitions):
            self.writer.produce(SOURCE, b"aborted:0", partition=partition)
        self.writer.flush(PATIENCE_S)
        insist(self.writer.abort_transaction, PATIENCE_S)
        insist(self.writer.begin_transaction)
        for partition in range(self.partitions):
            for number in range(self.written, records):
                self.writer.produce(SOURCE, b"%d:%d" % (partition, number), b"key-%d" % number, partition)
        insist(self.writer.commit_transaction, PATIENCE_S)
        self.written = records


def python_copier(folder: Path, *options: str) -> Launch:
    """Return what starts `copier`; its errors go to a file in `folder`."""

    def launch(bootstrap: str, transactional_id: str, seed: int) -> Program:
        command = [sys.executable, "-m", "tests.broker.eos.copier", bootstrap, "--source", SOURCE, "--target", TARGET]
        command += ["--group", GROUP, "--transactional-id", transactional_id, "--seed", str(seed), *options]
        return Program(command, folder / f"{transactional_id}.err")

    return launch
