"""Kafka's log is backed up while it serves, and restored to a moment: into a folder on which Kafka starts, and into a cluster."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import tidelog
from tests.cli.conftest import run_ok
from tests.interop.gate import first_of
from tests.kafka import Kafka391, Kafka420, why_not
from tests.kafka import kafka_registry as registries
from tests.kafka.clients import NewRow, commit_offsets, consume, create_topics, flush, produce, wait_until_ended
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.interop, pytest.mark.skipif(why_not() is not None, reason=str(why_not()))]

PARTITIONS = 2
SEGMENT_BYTES = str(1024 * 1024)  # Kafka 4 takes no smaller ones (KIP-1030).


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def write(bootstrap: str, what: str, count: int, *, padding: int = 0) -> None:
    """Produce to both partitions: plainly, and in a transaction of each kind."""
    for partition in range(PARTITIONS):
        rows = [NewRow(b"k%d" % n, what.encode() + bytes(padding), now_ms()) for n in range(count)]
        produce(bootstrap, "orders", rows, partition, enable_idempotence="true")  # A new producer each time.
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "copier", "log_level": 0})
    producer.init_transactions(PATIENCE_S)
    for is_committed in (True, False):
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            value = f"{what}-{is_committed}".encode()
            producer.produce("orders", value, b"t", partition=partition, timestamp=now_ms())
        flush(producer)
        if is_committed:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
    wait_until_ended(bootstrap, "copier")


def after(moment_ms: int) -> None:
    """Let the clock pass a moment."""
    while now_ms() <= moment_ms:
        time.sleep(0.001)


@pytest.mark.parametrize("kind", first_of(Kafka391, Kafka420, why="the formats are the same: the other release's test"))
def test_a_folder_as_of_a_moment(tmp_path: Path, kind: type[Kafka391]) -> None:
    """Bad data has come since the moment: Kafka starts without it, with the same offsets, producers and groups."""
    with kind(tmp_path / "before") as kafka:
        create_topics(kafka.bootstrap, {"orders": {"segment.bytes": SEGMENT_BYTES, "retention.ms": "-1"}}, PARTITIONS)
        write(kafka.bootstrap, "good", 500, padding=5000)
        commit_offsets(kafka.bootstrap, "readers", [TopicPartition("orders", n, 100 + n) for n in range(PARTITIONS)])
        good = [consume(kafka.bootstrap, "orders", n, isolation="read_committed") for n in range(PARTITIONS)]
        moment_ms = now_ms() + 1
        after(moment_ms)
        write(kafka.bootstrap, "bad", 300)
        commit_offsets(kafka.bootstrap, "readers", [TopicPartition("orders", n, 700) for n in range(PARTITIONS)])
        run_ok("backup", kafka.bootstrap, tmp_path / "backup", "--internal")
    data = tmp_path / "restored" / "data"
    ran = run_ok("restore", tmp_path / "backup", "--to", data, "--until", moment_ms)
    assert ran.stdout.count("as in the backup") == PARTITIONS
    with kind(tmp_path / "restored", {"metadata.log.dir": str(data)}) as kafka:
        assert [consume(kafka.bootstrap, "orders", n, isolation="read_committed") for n in range(PARTITIONS)] == good
        reader = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "readers", "log_level": 0})
        places = [TopicPartition("orders", n) for n in range(PARTITIONS)]
        assert [place.offset for place in reader.committed(places, timeout=PATIENCE_S)] == [100, 101]
        reader.close()
        write(kafka.bootstrap, "later", 10)  # The same transactional id goes on.
        rows = consume(kafka.bootstrap, "orders", 0, isolation="read_committed")
        assert rows[: len(good[0])] == good[0]
        assert [row.value for row in rows[len(good[0]) :]] == [*([b"later"] * 10), b"later-True"]


@pytest.mark.thorough(
    "the copies into a cluster are those of a mirror: test_mirror.py; into Tidelog's: tests/restore/test_cluster.py"
)
def test_a_cluster_as_of_a_moment(tmp_path: Path) -> None:
    with Kafka391(tmp_path / "before") as kafka:
        create_topics(
            kafka.bootstrap, {"orders": {"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}}, PARTITIONS
        )
        write(kafka.bootstrap, "good", 200)
        commit_offsets(kafka.bootstrap, "readers", [TopicPartition("orders", n, 100 + n) for n in range(PARTITIONS)])
        good = [consume(kafka.bootstrap, "orders", n, isolation="read_committed") for n in range(PARTITIONS)]
        moment_ms = now_ms() + 1
        after(moment_ms)
        write(kafka.bootstrap, "bad", 100)
        run_ok("backup", kafka.bootstrap, tmp_path / "backup")
    with Kafka391(tmp_path / "target") as kafka:
        arguments = ["--until", moment_ms, "--rename", "orders=old", "--work", tmp_path / "work"]
        run_ok("restore", tmp_path / "backup", "--to", kafka.bootstrap, *arguments)
        for number in range(PARTITIONS):
            rows = consume(kafka.bootstrap, "old", number, isolation="read_committed")
            assert [row[1:] for row in rows] == [row[1:] for row in good[number]]
        reader = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "readers", "log_level": 0})
        places = [TopicPartition("old", n) for n in range(PARTITIONS)]
        assert [place.offset for place in reader.committed(places, timeout=PATIENCE_S)] == [100, 101]
        reader.close()


def record(name: str, fields: str) -> dict[str, str]:
    """An Avro schema, as it is registered."""
    content = {"type": "record", "name": name, "fields": [{"name": one, "type": "string", "default": ""} for one in fields]}
    return {"schema": json.dumps(content)}


def registered(url: str) -> dict[str, list[tuple[int, str]]]:
    """The id and text of each version of each subject."""
    found = {}
    for subject in sorted(registries.call(f"{url}/subjects")):
        versions = registries.call(f"{url}/subjects/{subject}/versions")
        answers = [registries.call(f"{url}/subjects/{subject}/versions/{version}") for version in versions]
        found[subject] = [(one["id"], one["schema"]) for one in answers]
    return found


@pytest.mark.thorough("minutes of a registry's starts; its topic is copied like the others: test_a_cluster_as_of_a_moment")
@pytest.mark.skipif(registries.why_no_kafka_registry() is not None, reason=str(registries.why_no_kafka_registry()))
def test_a_schema_registry_comes_back_with_its_topic(tmp_path: Path) -> None:
    """Apicurio Registry: in another cluster it answers with the same ids, and new schemas get ids of their own."""

    def records(bootstrap: str) -> list[tuple[object, ...]]:
        rows = tidelog.scan(bootstrap, registries.TOPIC, isolation="read_committed").read_all().to_pylist()
        return [tuple(row[name] for name in ("partition", "timestamp", "key", "value", "headers")) for row in rows]

    with Kafka391(tmp_path / "before") as kafka:
        with registries.kafka_registry(kafka.bootstrap, tmp_path / "first") as url:
            for number in range(12):
                name = f"r{number % 5}"
                registries.call(f"{url}/subjects/{name}-value/versions", record(name, "abc"[: number // 5 + 1]))
            registries.call(f"{url}/subjects/r4-value", method="DELETE")
            before = registered(url)
        run_ok("backup", kafka.bootstrap, tmp_path / "backup")
        sent = records(kafka.bootstrap)
    with Kafka391(tmp_path / "after") as kafka:
        command = ["restore", tmp_path / "backup", "--to", kafka.bootstrap, "--topics", registries.TOPIC]
        run_ok(*command, "--work", tmp_path / "work")
        assert records(kafka.bootstrap) == sent
        with registries.kafka_registry(kafka.bootstrap, tmp_path / "second") as url:
            assert registered(url) == before
            new = registries.call(f"{url}/subjects/new-value/versions", record("new", "z"))["id"]
            assert new > max(one for versions in before.values() for one, _ in versions)
