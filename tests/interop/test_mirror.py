"""Mirrors between real clusters: the table of docs/mirror.md, KIP-32's four steps, a mirror that is killed, a source that dies.

West and east are Apache Kafka 3.9.1; a Tidelog stands beside them as another source, and as another target. What was copied is
judged by Tidelog's scan of the source and of the target, and by librdkafka where a consumer goes on.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

import tidelog
from tests.broker.conftest import RunningBroker
from tests.cli.conftest import KAFKA_2, KAFKA_3
from tests.examples import IS_SOAK
from tests.interop.gate import first_of
from tests.kafka.brokers import Kafka241, Kafka391
from tests.kafka.clients import NewRow, commit_offsets, consume, create_topics, produce, wait_until_decided
from tests.spark.mirroring import mirror_here
from tidelog.client.client import connect
from tidelog.client.connections.addresses import is_address
from tidelog.client.reading.partition_fetcher import PartitionFetcher
from tidelog.copying.failover import FailoverOptions, apply_failover, plan_failover
from tidelog.copying.offset_map import OffsetMap
from tidelog.model import TopicPartition as Key
from tidelog.reader.log_dir import LogDir
from tidelog.records.compression import Codec
from tidelog.spark.jobs.mirror import MirrorOptions

NOW = 1_373_414_400_000  # 2013-07-10
CREATE_TIME, LOG_APPEND_TIME = "CreateTime", "LogAppendTime"
CLUSTERS = ("kafka", "tidelog")
TIMEOUT_S = 120
Places = dict[str, str]


@pytest.fixture(scope="module")
def east_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka391]:
    with Kafka391(tmp_path_factory.mktemp("east"), {"log.initial.task.delay.ms": "100"}) as running:
        yield running


@pytest.fixture(scope="module")
def tidelogs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningBroker, RunningBroker]]:
    properties = {"offsets_topic_num_partitions": 1, "transaction_state_log_num_partitions": 1, "log_retention_ms": "-1"}
    started = [RunningBroker(tmp_path_factory.mktemp(name) / "data", **properties) for name in ("west", "east")]
    yield started[0], started[1]
    for one in started:
        one.stop()


@pytest.fixture(scope="module")
def west(broker: Kafka391, tidelogs: tuple[RunningBroker, RunningBroker]) -> Places:
    return {"kafka": broker.bootstrap, "tidelog": tidelogs[0].bootstrap_servers}


@pytest.fixture(scope="module")
def east(east_kafka: Kafka391, tidelogs: tuple[RunningBroker, RunningBroker]) -> Places:
    return {"kafka": east_kafka.bootstrap, "tidelog": tidelogs[1].bootstrap_servers}


def table(place: str, topic: str) -> list[dict[str, Any]]:
    """All committed records; times in ms, None for none."""
    if is_address(place):
        with connect(place) as client:
            wait_until_decided(place, topic, len(client.partitions(topic)))
    columns = ["offset", "partition", "key", "value", "headers", "timestamp", "timestamp_type", "create_time"]
    found = tidelog.scan(place, topic, columns=columns, isolation="read_committed").read_all()
    for name in ("timestamp", "create_time"):
        index = found.schema.get_field_index(name)
        found = found.set_column(index, name, found.column(name).cast(pa.int64()))
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


def codecs(place: str, topic: str) -> set[Codec]:
    """Which codecs a topic's data batches have."""
    if not is_address(place):
        log_dir = LogDir(place)
        logs = [log_dir.log(topic, number) for number in log_dir.partitions(topic)]
        return {header.codec for log in logs for header in log.headers() if not header.is_control}
    found = set()
    with connect(place) as client:
        for number in client.partitions(topic):
            (end,) = client.latest_offsets([(topic, number)]).values()
            for header, _, _ in PartitionFetcher(client.cluster, Key(topic, number), 0, end, isolation="read_committed"):
                found.add(header.codec)
    return found


def mirror(patch: pytest.MonkeyPatch, source: str, target: str, folder: Path, **rest: object) -> Any:
    return mirror_here(patch, MirrorOptions(source=source, target=target, map_dir=str(folder), **rest))  # type: ignore[arg-type]


# --- the table


def check_copy(source: list[dict[str, Any]], target: list[dict[str, Any]], kind: str, begin_ms: int, end_ms: int) -> None:
    """The table's rules: what is the same in a copy, and what each kind of topic makes of times."""
    assert [(row["partition"], row["key"], row["value"], row["headers"]) for row in target] == [
        (row["partition"], row["key"], row["value"], row["headers"]) for row in source
    ]
    for old, new in zip(source, target, strict=True):
        made = old["create_time"] if old["create_time"] is not None else old["timestamp"]
        assert new["create_time"] == made, "the producer's time, as far as the source knows it"
        if kind == CREATE_TIME:
            assert new["timestamp"] == made
            assert new["timestamp_type"] == 0
        else:
            assert begin_ms <= new["timestamp"] <= end_ms
            assert new["timestamp_type"] == 1


@pytest.mark.thorough("each target and each kind: test_live_clusters; each format and codec: tests/copying")
@pytest.mark.parametrize("target", ["kafka", "tidelog"])
@pytest.mark.parametrize("kind", [LOG_APPEND_TIME, CREATE_TIME])
def test_formats_and_codecs(east: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: str, kind: str) -> None:
    """Every topic of the folders of Kafka 2.4.1 and 3.9.1: v0, v1, v2, both types, all codecs, gaps, transactions."""
    for release, folder in (("2", KAFKA_2), ("3", KAFKA_3)):
        topics = [name for name in LogDir(folder).topics() if not name.startswith("__")]
        prefix = f"{release}.{kind}."
        partitions = {name: 2 if name == "two-partitions" else 1 for name in topics}
        for count in (1, 2):
            names = [name for name in topics if partitions[name] == count]
            settings = {"message.timestamp.type": kind, "retention.ms": "-1"}
            if names:
                create_topics(east[target], {prefix + name: settings for name in names}, count)
        begin_ms = int(time.time() * 1000) - 1
        mirror(monkeypatch, str(folder), east[target], tmp_path / release, prefix=prefix)
        end_ms = int(time.time() * 1000) + 1
        maps = OffsetMap.open(tmp_path / release)
        for topic in topics:
            source, copy = table(str(folder), topic), table(east[target], prefix + topic)
            check_copy(source, copy, kind, begin_ms, end_ms)
            assert codecs(east[target], prefix + topic) == (codecs(str(folder), topic) if source else set())
            for old, new in zip(source, copy, strict=True):
                assert maps.target_of(topic, old["partition"], old["offset"]) == (new["offset"], True)


@pytest.mark.parametrize(
    ("source", "target", "kind"),
    [
        ("kafka", "tidelog", CREATE_TIME),
        *first_of(
            ("tidelog", "kafka", LOG_APPEND_TIME),
            *[("kafka", "tidelog", LOG_APPEND_TIME), ("tidelog", "kafka", CREATE_TIME)],
            *[("kafka", "kafka", kind) for kind in (CREATE_TIME, LOG_APPEND_TIME)],
            *[("tidelog", "tidelog", kind) for kind in (CREATE_TIME, LOG_APPEND_TIME)],
            why="the same pair with the other kind, or one kind of cluster with itself",
        ),
    ],
)
def test_live_clusters(
    west: Places, east: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, target: str, kind: str
) -> None:
    """Topics are made like the source's; librdkafka sees the same on both sides."""
    topic = f"live-{source}-{target}-{kind}"
    settings = {"message.timestamp.type": kind, "retention.ms": "-1", "compression.type": "zstd", "segment.bytes": "1048576"}
    create_topics(west[source], {topic: settings}, 2)
    for partition in (0, 1):
        rows = [NewRow(b"k%d" % at, None if at % 7 == 0 else b"v%d" % at, NOW + at, [("h", b"%d" % at)]) for at in range(500)]
        produce(west[source], topic, rows, partition)
    begin_ms = int(time.time() * 1000) - 1
    mirror(monkeypatch, west[source], east[target], tmp_path, topics=(topic,))
    check_copy(table(west[source], topic), table(east[target], topic), kind, begin_ms, int(time.time() * 1000) + 1)
    for partition in (0, 1):
        seen = [consume(place, topic, partition, isolation="read_committed") for place in (west[source], east[target])]
        same_from = 1 if kind == CREATE_TIME else 2  # without the offset, and a time that each cluster sets
        assert [row[same_from:] for row in seen[0]] == [row[same_from:] for row in seen[1]]


def test_a_cluster_of_old(west: Places, east: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka 2.4.1 with ZooKeeper, as a source of v1, and as a target: of v2, and of v1, where nobody knows transactions."""
    with Kafka241(tmp_path / "old") as old:
        old.create_topics(
            {
                "v1-ct": {"message.format.version": "0.10.0", "retention.ms": "-1"},
                "v1-lat": {"message.format.version": "0.10.0", "message.timestamp.type": LOG_APPEND_TIME},
            }
        )
        for topic in ("v1-ct", "v1-lat"):
            rows = [NewRow(b"k", b"v%d" % at, NOW + at) for at in range(300)]
            produce(old.bootstrap, topic, rows, compression_type="gzip")
        begin_ms = int(time.time() * 1000) - 1
        mirror(monkeypatch, old.bootstrap, east["kafka"], tmp_path / "out")
        end_ms = int(time.time() * 1000) + 1
        for topic, kind in (("v1-ct", CREATE_TIME), ("v1-lat", LOG_APPEND_TIME)):
            check_copy(table(old.bootstrap, topic), table(east["kafka"], topic), kind, begin_ms, end_ms)

        create_topics(west["kafka"], {name: {"retention.ms": "-1"} for name in ("to-old-v1", "to-old-v2")}, 2)
        old.create_topic("to-old-v1", 1, {"message.format.version": "0.10.0", "retention.ms": "-1"})
        for topic in ("to-old-v1", "to-old-v2"):
            produce(west["kafka"], topic, [NewRow(b"k", b"v%d" % at, NOW + at) for at in range(300)], 1)
        done = mirror(monkeypatch, west["kafka"], old.bootstrap, tmp_path / "in", pattern="to-old-.*")
        for topic in ("to-old-v1", "to-old-v2"):
            seen = [consume(place, topic, 1) for place in (west["kafka"], old.bootstrap)]
            assert [row[1:] for row in seen[1]] == [row[1:] for row in seen[0]]
        assert {row["topic"] for row in done.rows if not row["is_exact"]} == {"to-old-v1"}, "and it is said"


# --- KIP-32's four steps


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("kafka", "tidelog"),
        *first_of(("tidelog", "kafka"), ("kafka", "kafka"), ("tidelog", "tidelog"), why="one kind of cluster with itself"),
    ],
)
def test_the_four_steps(
    west: Places, east: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, target: str
) -> None:
    """KIP-32: (T0, -1) is produced; (T0, T1) in cluster 1; a mirror copies it; (T0, T2) in cluster 2."""
    topic = f"steps-{source}-{target}"
    create_topics(west[source], {topic: {"message.timestamp.type": LOG_APPEND_TIME}})
    t0 = int(time.time() * 1000) - 60_000
    count = 200
    # Step 1: a producer knows CreateTime only. Step 2: the leader appends; what a consumer is shown is T1.
    produce(west[source], topic, [NewRow(b"%d" % at, b"value", t0 + at) for at in range(count)], linger_ms=20)
    first = table(west[source], topic)
    assert [row["create_time"] for row in first] == [t0 + at for at in range(count)]
    assert all(row["timestamp_type"] == 1 and row["timestamp"] >= row["create_time"] for row in first)
    # Steps 3 and 4: the mirror hands T0 on; cluster 2 puts its own T2 where cluster 1 had T1.
    between_ms = _next_millisecond(max(row["timestamp"] for row in first))
    mirror(monkeypatch, west[source], east[target], tmp_path, topics=(topic,))
    second = table(east[target], topic)
    assert [row["create_time"] for row in second] == [row["create_time"] for row in first], "CreateTime is the same on both"
    assert all(row["timestamp_type"] == 1 and row["timestamp"] >= between_ms for row in second), "LogAppendTime differs"
    assert [row[3:] for row in consume(east[target], topic)] == [row[3:] for row in consume(west[source], topic)]


def _next_millisecond(time_ms: int) -> int:
    while (now_ms := int(time.time() * 1000)) <= time_ms:
        pass
    return now_ms


# --- kills


@pytest.mark.parametrize(
    ("source", "target"), first_of(("kafka", "tidelog"), ("tidelog", "kafka"), why="a killed mirror into Kafka: test_replays")
)
def test_a_mirror_that_is_killed(west: Places, east: Places, tmp_path: Path, source: str, target: str) -> None:
    """kill -9 at random while producers write: each record is there once, and the map knows where."""
    topic = f"killed-{source}-{target}"
    create_topics(west[source], {topic: {"retention.ms": "-1"}}, 2)
    chance = random.Random(7)
    count, kills = 0, 6 if IS_SOAK else 3
    with (tmp_path / "err").open("w") as errors:
        for _ in range(kills + 1):
            command = [sys.executable, "-m", "tests.interop.mirror_program", west[source], east[target]]
            command += [str(tmp_path / "map"), topic, "3000"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True) as process:
                assert process.stdout is not None
                for _ in range(2):
                    for partition in (0, 1):
                        rows = [NewRow(None, b"%d" % at, NOW + at) for at in range(count, count + 400)]
                        produce(west[source], topic, rows, partition, batch_records=20)
                    count += 400
                    if process.stdout.readline() != "round\n":
                        raise RuntimeError(f"the mirror has ended: {(tmp_path / 'err').read_text()}")
                time.sleep(chance.random() * 0.3)
                process.kill()
    run = [sys.executable, "-m", "tests.interop.mirror_program", west[source], east[target], str(tmp_path / "map"), topic, "3000"]
    with subprocess.Popen(run, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if process.stdout.readline() != "round\n":
            raise RuntimeError("the mirror has ended")
        process.kill()
    old, new = table(west[source], topic), table(east[target], topic)
    assert Counter((row["partition"], row["value"]) for row in new) == Counter((row["partition"], row["value"]) for row in old)
    maps = OffsetMap.open(tmp_path / "map")
    where = {(row["partition"], row["value"]): row["offset"] for row in new}
    for row in old:
        assert maps.target_of(topic, row["partition"], row["offset"]) == (where[row["partition"], row["value"]], True)


def test_a_source_that_dies(east: Places, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A consumer of a Kafka that is killed goes on in its mirror: by the map, and by time; twice is what was said."""
    latency_ms = 3_000
    with Kafka391(tmp_path / "west") as dying:
        settings = {"message.timestamp.type": CREATE_TIME, "retention.ms": "-1"}
        dying.create_topic("orders", 2, settings)
        chance = random.Random(3)
        for partition in (0, 1):
            rows = [NewRow(None, b"%d" % at, NOW + 10 * at - chance.randrange(latency_ms)) for at in range(2_000)]
            produce(dying.bootstrap, "orders", rows, partition, batch_records=17)
        read = _read_some(dying.bootstrap, "orders", 1_300)
        mirror(monkeypatch, dying.bootstrap, east["kafka"], tmp_path / "map", topics=("orders",), groups=("readers",))
        everything = {(row["partition"], row["value"]) for row in table(dying.bootstrap, "orders")}
        dying.kill()
    for by in ("time", "map"):
        options = FailoverOptions(group="readers", map_dir=tmp_path / "map", max_latency_ms=latency_ms, by=by)  # type: ignore[arg-type]
        with connect(east["kafka"]) as client:
            planned = plan_failover(client.cluster, options)
            apply_failover(client.cluster, "readers", planned)
        went_on = _read_rest(east["kafka"], planned)
        assert set(went_on) | set(read) == everything, "nothing is missed"
        twice = Counter(went_on) & Counter(read)
        assert twice.total() == sum(one.again for one in planned)
        assert all(one.again_is_exact for one in planned)
        assert not twice if by == "map" else twice


def _consumer(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "readers",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )


def _records(messages: list[Any], deadline: float) -> list[Any]:
    """Those of them that are records; an error that is reported among them is raised, as is a deadline that has passed."""
    for message in messages:
        if message.error() is not None:
            raise KafkaException(message.error())
    if time.monotonic() > deadline:
        raise TimeoutError(f"read for {TIMEOUT_S} s, and there is more")
    return messages


def _read_some(bootstrap: str, topic: str, count: int) -> list[tuple[int, bytes]]:
    """Read so many records of each partition, and commit."""
    read: list[tuple[int, bytes]] = []
    end = time.monotonic() + TIMEOUT_S
    consumer = _consumer(bootstrap)
    try:
        for partition in (0, 1):
            consumer.assign([TopicPartition(topic, partition, 0)])
            its: list[Any] = []
            while len(its) < count + partition:
                its += _records(consumer.consume(count + partition - len(its), timeout=1), end)
            commit_offsets(bootstrap, "readers", [TopicPartition(topic, partition, its[-1].offset() + 1)])
            read += [(partition, message.value()) for message in its]
    finally:
        consumer.close()
    return read


def _read_rest(bootstrap: str, planned: Any) -> list[tuple[int, bytes]]:
    """Read from the group's offsets to the end."""
    consumer = _consumer(bootstrap)
    deadline = time.monotonic() + TIMEOUT_S
    read: list[tuple[int, bytes]] = []
    try:
        keys = [TopicPartition(one.target.topic, one.target.partition) for one in planned]
        for key in consumer.committed(keys, timeout=TIMEOUT_S):
            consumer.assign([key])
            start = key.offset
            high = consumer.get_watermark_offsets(key, timeout=TIMEOUT_S)[1]
            while consumer.position([key])[0].offset < high:
                for message in _records(consumer.consume(500, timeout=0.5), deadline):
                    assert message.offset() >= start
                    read.append((key.partition, message.value()))
    finally:
        consumer.close()
    return read
