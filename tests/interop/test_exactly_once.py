"""Exactly once with Java: a transactional copy by Apache Kafka's clients, and a word count by Kafka Streams, under kill -9.

The copies, what is done to them, and how they are counted is in `tests/broker/eos/copying.py`. The word count reads lines,
repartitions them by word, keeps its counts in memory and in a changelog topic, all with exactly_once_v2. Each new count of a word
is a record, so the counts of a word are 1, 2, 3, ... without a gap, however often broker and application were killed.
"""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.broker.eos.copying import GROUP, SOURCE, TARGET, Copying, Launch, python_copier
from tests.broker.eos.processes import Endpoint, Program, Served
from tests.kafka.brokers import Kafka391
from tests.kafka.clients import NewRow, create_topics, produce, watermarks
from tests.kafka.jars import classpath
from tests.kafka.java import java_command
from tests.patience import PATIENCE_S

SOURCES = Path(__file__).parents[1] / "kafka" / "java_sources"
QUICK = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
PROPERTIES = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
}
SOAK = bool(os.environ.get("TIDELOG_SOAK"))
ASSIGNORS = "org.apache.kafka.clients.consumer."
PARTITIONS = 2
LINES = 4000
START_MS = 1_700_000_000_000
ENDED = 128 + signal.SIGTERM
"""The status of a JVM that ended in order when it was asked to."""
WORDS = ["tide", "log", "sea", "salt", "reef", "wave", "moon", "ebb", "flood", "shoal"]


def java_program(name: str, arguments: list[str], errors: Path, jars: str = "kafka-streams-3.9.1") -> Program:
    program = str(SOURCES / f"{name}.java")
    return Program(java_command(classpath(jars), program, arguments, heap_mb=192, options=QUICK), errors)


def java_copier(folder: Path, assignor: str = "RangeAssignor", jars: str = "kafka-streams-3.9.1") -> Launch:
    def launch(bootstrap: str, transactional_id: str, seed: int) -> Program:
        arguments = [bootstrap, SOURCE, TARGET, GROUP, transactional_id, str(seed), "0.1", ASSIGNORS + assignor]
        return java_program("TransactionalCopier", arguments, folder / f"{transactional_id}.err", jars)

    return launch


@pytest.mark.thorough("Java's transactions: test_kafka_streams_counts_words; copiers that are killed: tests/broker/eos")
@pytest.mark.parametrize("assignor", ["CooperativeStickyAssignor", *(["RangeAssignor"] if SOAK else [])])
def test_java_copies_each_record_once(tmp_path: Path, assignor: str) -> None:
    with (
        Served(tmp_path / "data", PROPERTIES) as broker,
        Copying(broker, java_copier(tmp_path, assignor), partitions=3, records=3000, seed=2) as copying,
    ):
        copying.run(["broker_dies", "joins", "copier_dies", "broker_dies"])
    assert copying.counts["committed"] > 0
    assert copying.counts["uncommitted"] > 0


class TakenOver:
    """Apache Kafka 3.9.1 at its first start; from the second on Tidelog in its data folder, on its port."""

    def __init__(self, folder: Path) -> None:
        kafka = Kafka391(folder, PROPERTIES)
        self.bootstrap = kafka.bootstrap
        self._now: Endpoint = kafka
        self._next = Served(kafka.data, PROPERTIES, kafka.port)

    def start(self) -> None:
        self._now.start()

    def stop(self) -> None:
        self._now.stop()
        self._now = self._next

    def kill(self) -> None:
        self._now.kill()
        self._now = self._next


def test_tidelog_goes_on_where_kafka_was_killed(tmp_path: Path) -> None:
    """Members of one group, of two kinds, in the middle of transactions that Kafka began. They notice that a broker was away."""
    java, librdkafka = java_copier(tmp_path), python_copier(tmp_path, "--transaction-timeout-ms", "10000")

    def launch(bootstrap: str, transactional_id: str, seed: int) -> Program:
        return (java if transactional_id == "copier-0" else librdkafka)(bootstrap, transactional_id, seed)

    broker = TakenOver(tmp_path)
    broker.start()
    try:
        with Copying(broker, launch, partitions=3, records=2000, seed=3, copiers=2) as copying:
            copying.run(["broker_dies", "copier_dies"])
    finally:
        broker.kill()


def word_count(bootstrap: str, folder: Path) -> Program:
    arguments = [bootstrap, "word-count", "lines", "counts", str(folder / "state")]
    return java_program("WordCount", arguments, folder / "streams.err")


def count_words(broker: Endpoint, folder: Path, disturbances: int) -> None:
    """Count the words of lines that come in shares; while one is counted broker or application is killed."""
    rng = random.Random(4)
    create_topics(broker.bootstrap, {"lines": {}, "counts": {}}, PARTITIONS)
    watcher = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "watcher",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    watcher.assign([TopicPartition("counts", partition, OFFSET_BEGINNING) for partition in range(PARTITIONS)])
    expected: Counter[str] = Counter()
    seen: Counter[str] = Counter()

    def write() -> None:
        lines = [" ".join(rng.choices(WORDS, k=rng.randint(1, 5))) for _ in range(LINES)]
        expected.update(word for line in lines for word in line.split())
        for partition in range(PARTITIONS):
            rows = [NewRow(None, line.encode(), START_MS + number) for number, line in enumerate(lines[partition::PARTITIONS])]
            produce(broker.bootstrap, "lines", rows, partition)

    def watch(records: int) -> None:
        silent = 0
        while seen.total() < records:
            messages = [each for each in watcher.consume(1000, 1) if each.error() is None]
            for message in messages:
                word = (message.key() or b"").decode()
                seen[word] += 1
                assert message.value() == b"%d" % seen[word], f"{word}: {message.value()!r}, after {seen[word] - 1}"
            silent = 0 if messages else silent + 1
            if silent > PATIENCE_S:
                ends = _ends(broker.bootstrap, "lines", "word-count-count-repartition", "counts")
                raise TimeoutError(f"{seen.total()} of {records}: {ends} {streams.look()[-3:]} {streams.tail()}")
            assert streams.ended() is None, streams.tail()

    streams = word_count(broker.bootstrap, folder)
    try:
        for number in range(disturbances):
            write()
            watch(rng.randint(seen.total() + 1, expected.total()))
            if number % 2 == 0:
                broker.kill()
                broker.start()
            else:
                streams.kill()
                streams = word_count(broker.bootstrap, folder)
        write()
        watch(expected.total())
        assert seen == expected
        assert streams.stop() == ENDED
        assert streams.events[-1] == ["state", "NOT_RUNNING"]
    finally:
        streams.kill()
        watcher.close()


def _ends(bootstrap: str, *topics: str) -> dict[str, list[int]]:
    """Return where each topic ends, and where committed transactions do: they tell who is behind."""
    return {
        f"{topic}, {isolation}": [watermarks(bootstrap, topic, one, isolation=isolation)[1] for one in range(PARTITIONS)]
        for topic in topics
        for isolation in ("read_uncommitted", "read_committed")
    }


def test_kafka_streams_counts_words(tmp_path: Path) -> None:
    with Served(tmp_path / "data", PROPERTIES) as broker:
        count_words(broker, tmp_path, 12 if SOAK else 3)
